"""`Fault`: a wrong pass, and the few ways in which one is made from the right passes.

Each fault is one small function. Its name is the name of the fault, its docstring the summary. It
either rewrites the graph after a stage, or stands for one function of `reference_pass` while that
one builds. All else is as in the target `reference`.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from unittest import mock

import torch
from torch import fx

from reference_pass.conditions import CONDITIONS, Condition
from reference_pass.functionalize import RULES, functionalize_by
from reference_pass.metadata import update_metadata
from reference_pass.noops import remove_noops
from reference_pass.reinplace import reinplace
from reference_pass.rules import Rules
from targets.reference import CONTRACT, staged, untraced
from targets.target import Build, Function, Target

Inputs: TypeAlias = Sequence[torch.Tensor]
Make: TypeAlias = Callable[[Function, Inputs], Build]
Rewrite: TypeAlias = Callable[[fx.GraphModule], None]
Context: TypeAlias = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong pass.

    `source` is a PyTorch issue that it re-creates, or the rule of the reference pass that it
    breaks.
    """

    name: str
    summary: str
    source: str
    make: Make = field(repr=False)

    @property
    def target(self) -> Target:
        """The fault as a target that promises all that eager does."""
        return Target(self.name, self.summary, CONTRACT, self.make, recipe="")


def _left_alone(graph_module: fx.GraphModule) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of the reference with something wrong about them, as the `make` of a fault.

    `functional`, `plain` and `reinplaced` rewrite the graph after functionalization, after no-ops
    were dropped, and at the end; metadata is made true after the first two, as a careful pass
    would. `rules` are those of functionalization, `conditions` those of reinplacing. `within` is
    entered while all of it builds.
    """

    functional: Rewrite = _left_alone
    plain: Rewrite = _left_alone
    reinplaced: Rewrite = _left_alone
    rules: Rules = RULES
    conditions: Sequence[Condition] = CONDITIONS
    within: Context = contextlib.nullcontext

    def __call__(self, function: Function, inputs: Inputs) -> Build:
        """Build as the target `reference` does."""
        function = untraced(function)
        with self.within():
            functional = _rewritten(
                functionalize_by(self.rules, function, *inputs), self.functional
            )
            plain = _rewritten(remove_noops(copy.deepcopy(functional)), self.plain)
            reinplaced = reinplace(copy.deepcopy(plain), conditions=self.conditions)
            self.reinplaced(reinplaced)
            reinplaced.recompile()
        return staged(functional, plain, reinplaced)


def _rewritten(graph_module: fx.GraphModule, rewrite: Rewrite) -> fx.GraphModule:
    if rewrite is not _left_alone:
        rewrite(graph_module)
        graph_module.recompile()
        update_metadata(graph_module)
    return graph_module


def fault(wrong: Callable[..., Any], source: str, make: Make) -> Fault:
    """A fault with the name and the summary of the function that is wrong."""
    summary = " ".join((wrong.__doc__ or "").split())
    return Fault(wrong.__name__.strip("_").replace("_", " "), summary, source, make)


def after_functionalize(rewrite: Rewrite, source: str) -> Fault:
    """A rewrite of the functional graph."""
    return fault(rewrite, source, Passes(functional=rewrite))


def after_noops(rewrite: Rewrite, source: str) -> Fault:
    """A rewrite of the functional graph without no-ops."""
    return fault(rewrite, source, Passes(plain=rewrite))


def after_reinplace(rewrite: Rewrite, source: str) -> Fault:
    """A rewrite of the reinplaced graph."""
    return fault(rewrite, source, Passes(reinplaced=rewrite))


def by_rules(wrong: Callable[..., Any], source: str, rules: Rules) -> Fault:
    """Functionalization by rules of which one is the wrong function: `replace(RULES, is_base=wrong)`."""
    return fault(wrong, source, Passes(rules=rules))


def instead_of(
    name: str,
    wrong: Callable[..., Any],
    source: str,
    *owners: str | type,
    kind: Any = None,
    rules: Rules = RULES,
) -> Fault:
    """A function that stands for the one of that name, of modules of `reference_pass` or classes, while the passes run.

    `kind` is what it is wrapped in, such as `property`. `rules` are those of functionalization.
    """

    def substituted() -> AbstractContextManager[object]:
        stack = contextlib.ExitStack()
        for owner in owners:
            stack.enter_context(
                mock.patch.object(_module(owner), name, wrong if kind is None else kind(wrong))
            )
        return stack

    return fault(wrong, source, Passes(rules=rules, within=substituted))


def _module(owner: str | type) -> object:
    """A module by name: as attributes of their package, some stand behind a function of that name."""
    return importlib.import_module(f"reference_pass.{owner}") if isinstance(owner, str) else owner
