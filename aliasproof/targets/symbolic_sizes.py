"""Builds with symbolic sizes, by the name of the target: those of the variant *symbolic*.

A build takes the function and fake tensors with symbolic sizes, which it may mutate. It leaves its
guards in the `ShapeEnv` of these fakes. The function that it returns accepts fake and real tensors
of all sizes that satisfy the guards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from aliasproof.targets import registry, variants
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build, Function
from aliasproof.targets.tracing import Tracing

SymbolicBuild: TypeAlias = Callable[[Function, Sequence[torch.Tensor]], Function]


def _identity(function: Function, fakes: Sequence[torch.Tensor]) -> Function:
    return function


def _symbolic(
    build: Callable[..., Build], function: Function, fakes: Sequence[torch.Tensor]
) -> Function:
    return build(function, fakes, Tracing(symbolic=True)).function


# A target without an entry has no symbolic form: `prove` answers unknown. The variant compiles so
# anyway.
SYMBOLIC: dict[str, SymbolicBuild] = {
    "identity": _identity,
    **{
        f"{name}{variant}": functools.partial(_symbolic, target.build)
        for name, target in TARGETS.items()
        if target.own(variants.SYMBOLIC) is not None
        for variant in ("", ":symbolic")
    },
}


def symbolic_build(name: str) -> SymbolicBuild | None:
    """The build of a target; None if it has none."""
    own = registry.OWN.get(name.removesuffix(":symbolic"))
    if own is None:
        return SYMBOLIC.get(name)
    return functools.partial(_symbolic, own.build) if own.own(variants.SYMBOLIC) else None
