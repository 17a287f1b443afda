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

from aliasproof.targets import variants
from aliasproof.targets.target import Build, Function
from aliasproof.targets.tracing import Tracing
from aliasproof.targets.variant_table import VARIANTS
from aliasproof.targets.variants import TRACED

SymbolicBuild: TypeAlias = Callable[[Function, Sequence[torch.Tensor]], Function]


def _identity(function: Function, fakes: Sequence[torch.Tensor]) -> Function:
    return function


def _symbolic(
    build: Callable[..., Build], function: Function, fakes: Sequence[torch.Tensor]
) -> Function:
    return build(function, fakes, Tracing(symbolic=True)).function


_PLAIN = {name: functools.partial(_symbolic, traced.build) for name, traced in TRACED.items()}

_WITH_SYMBOLIC = VARIANTS["symbolic"].targets

# A target without an entry has no symbolic form: `prove` answers unknown.
SYMBOLIC: dict[str, SymbolicBuild] = {
    "identity": _identity,
    **_PLAIN,
    # That is what the variant does anyway.
    **{f"{name}:symbolic": build for name, build in _PLAIN.items() if name in _WITH_SYMBOLIC},
}


def symbolic_build(name: str) -> SymbolicBuild | None:
    """The build of a target; None if it has none."""
    base = name.removesuffix(":symbolic")
    if base in variants.OWN:
        traced = variants.OWN[base].traced
        return None if traced is None else functools.partial(_symbolic, traced.build)
    return SYMBOLIC.get(name)
