"""`Fault`: a wrong pass, and the few ways in which one is made from the right passes.

Each fault is one small function. The function gives the fault its name, and its docstring is the
summary. It either rewrites the graph after a stage, or replaces one function of `reference_pass`
while the passes run. Everything else is as in the target `reference`, or `reference-planned`.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar
from unittest import mock

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.ir.errors import InternalError
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.pipeline import (
    CONDITIONS,
    NOOP_RULES,
    functionalize,
    reinplace,
    remove_noops,
    update_metadata,
)
from aliasproof.reference_pass.planning.noops import NoOpRule
from aliasproof.reference_pass.rules import RULES, Rules
from aliasproof.targets.reference import CONTRACT, REFERENCE, staged
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import untraced

Inputs: TypeAlias = Sequence[torch.Tensor]
Make: TypeAlias = Callable[[Function, Inputs], Build]
Rewrite: TypeAlias = Callable[[fx.GraphModule], None]
Context: TypeAlias = Callable[[], AbstractContextManager[object]]
P = ParamSpec("P")
W = TypeVar("W", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong pass.

    `source` is the PyTorch issue that the fault re-creates, or the rule of the reference pass that
    it breaks. `right` is the target without the fault.
    """

    name: str
    summary: str
    source: str
    make: Make = field(repr=False)
    right: Target = field(default=REFERENCE, repr=False)

    @property
    def target(self) -> Target:
        """The fault as a target with the contract of the reference: the same results as eager."""
        return Target(self.name, self.summary, CONTRACT, self.make, recipe="")


def _left_alone(graph_module: fx.GraphModule) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of the reference with one thing wrong, as the `make` of a fault.

    `functional` rewrites the graph after functionalization, `plain` after no-ops are removed, and
    `reinplaced` after reinplacing. The metadata is updated after the first two, as a careful pass
    would do. `rules` are the decisions of functionalization, `noop_rules` those of removing no-ops,
    `conditions` those of reinplacing. `last` is the last pass: reinplacing, or memory planning. All
    passes run inside the context `within`.
    """

    functional: Rewrite = _left_alone
    plain: Rewrite = _left_alone
    reinplaced: Rewrite = _left_alone
    rules: Rules = RULES
    noop_rules: Sequence[NoOpRule] = NOOP_RULES
    conditions: Sequence[Condition] = CONDITIONS
    last: Callable[..., fx.GraphModule] = reinplace
    within: Context = contextlib.nullcontext

    def __call__(self, function: Function, inputs: Inputs) -> Build:
        """Build as the target `reference` does."""
        function = untraced(function)
        with self.within():
            functional = functionalize(function, *inputs, rules=self.rules)
            functional = _rewritten(functional, self.functional)
            plain = remove_noops(copy.deepcopy(functional), rules=self.noop_rules)
            plain = _rewritten(plain, self.plain)
            reinplaced = self.last(copy.deepcopy(plain), conditions=self.conditions)
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
    """A fault with the name and the docstring of the wrong function."""
    summary = " ".join((wrong.__doc__ or "").split())
    return Fault(fault_name(wrong), summary, source, make)


def fault_name(wrong: Callable[..., Any]) -> str:
    """The name of a fault: that of its function, in words."""
    return wrong.__name__.strip("_").replace("_", " ")


class Faults(list[Fault]):
    """The faults of a module, in the order of their functions."""

    def add(
        self, make: Callable[Concatenate[Any, P], Fault], *args: P.args, **kwargs: P.kwargs
    ) -> Callable[[W], W]:
        """Add what `make` makes of the wrong function and of these further arguments."""

        def added(wrong: W) -> W:
            self.append(make(wrong, *args, **kwargs))
            return wrong

        return added


def from_build(build: Make, source: str) -> Fault:
    """A build of its own, in place of the passes."""
    return fault(build, source, build)


def _after(stage: str) -> Callable[[Rewrite, str], Fault]:
    """A rewrite of the graph after a stage, by its name in `Passes`."""

    def make(rewrite: Rewrite, source: str) -> Fault:
        require_same_parameters(rewrite, _left_alone)
        changed: dict[str, Any] = {stage: rewrite}
        return fault(rewrite, source, Passes(**changed))

    return make


after_functionalize, after_noops = _after("functional"), _after("plain")
after_reinplace = _after("reinplaced")


def by_rule(wrong: Callable[..., Any], name: str, source: str) -> Fault:
    """Functionalization with one wrong rule, by its name in `Rules`."""
    require_same_parameters(wrong, getattr(RULES, name))
    changed: dict[str, Any] = {name: wrong}
    return fault(wrong, source, Passes(rules=replace(RULES, **changed)))


def by_table(wrong: Callable[..., Any], name: str, source: str, *ops: OpOverload) -> Fault:
    """Functionalization with wrong lines in one of the tables of `Rules`, by its name."""
    table = getattr(RULES, name)
    for op in ops:
        # A table may have no line for the op: then the wrong one is new.
        require_same_parameters(wrong, table.get(op, next(iter(table.values()))))
    changed: dict[str, Any] = {name: {**table, **dict.fromkeys(ops, wrong)}}
    return fault(wrong, source, Passes(rules=replace(RULES, **changed)))


def weaker_condition(wrong: Condition, right: Condition, source: str) -> Fault:
    """Reinplacing with one condition replaced by a weaker one."""
    require_same_parameters(wrong, right)
    asked = [wrong if condition is right else condition for condition in CONDITIONS]
    return fault(wrong, source, Passes(conditions=asked))


def weaker_noop_rule(wrong: NoOpRule, right: NoOpRule, source: str) -> Fault:
    """Removing no-ops with one rule replaced by a weaker one."""
    require_same_parameters(wrong, right)
    rules = [wrong if rule is right else rule for rule in NOOP_RULES]
    return fault(wrong, source, Passes(noop_rules=rules))


def instead_of_entries(
    wrong: Callable[..., Any], table: MutableMapping[Any, Any], source: str, *keys: object
) -> Fault:
    """The wrong function replaces entries of a table of the reference pass while the passes run."""
    for key in keys:
        require_same_parameters(wrong, table[key])

    def replacement() -> AbstractContextManager[object]:
        return mock.patch.dict(table, dict.fromkeys(keys, wrong))

    return fault(wrong, source, Passes(within=replacement))


def instead_of(
    wrong: Callable[..., Any],
    name: str,
    source: str,
    home: str | type,
    *more_homes: str | type,
) -> Fault:
    """The wrong function replaces a function, method or property while the passes run.

    `name` is the name of the right one in its home. A home is a class, or the name of a module of
    `reference_pass`. Each module that imports a function has its own reference to it, so give all
    modules in which the wrong one is to be called. It also replaces a rule in `Rules` that is the
    right one, and has its name. Raises `InternalError` if a home has no such name, if two homes
    mean different functions by it, or if the wrong function takes other parameters than the right
    one.
    """
    # Not `getattr(reference_pass, home)`: the package has functions with the names of modules.
    owners = [
        importlib.import_module(f"aliasproof.reference_pass.{it}") if isinstance(it, str) else it
        for it in (home, *more_homes)
    ]
    functions: list[Any] = []
    for owner in owners:
        attribute = inspect.getattr_static(owner, name, None)
        if attribute is None:
            raise InternalError(
                f"fault '{fault_name(wrong)}' replaces '{name}' of {owner.__name__}, which has no"
                " such name; if it was renamed, give the new name"
            )
        functions.append(attribute.fget if isinstance(attribute, property) else attribute)
    right = functions[0]  # of a property, its getter
    if any(other is not right for other in functions):
        names = ", ".join(owner.__name__ for owner in owners)
        raise InternalError(
            f"fault '{fault_name(wrong)}' replaces '{name}' of {names}, but these are different"
            " functions; plant one fault for each"
        )
    is_property = isinstance(inspect.getattr_static(owners[0], name), property)
    require_same_parameters(wrong, right)

    @contextlib.contextmanager
    def replacement() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for owner in owners:
                new = property(wrong) if is_property else wrong
                stack.enter_context(mock.patch.object(owner, name, new))
            yield

    changed: dict[str, Any] = {name: wrong} if getattr(RULES, name, None) is right else {}
    return fault(wrong, source, Passes(rules=replace(RULES, **changed), within=replacement))


def input_storages(graph_module: fx.GraphModule) -> set[int]:
    """The storages of the inputs of a graph."""
    inputs = graph_module.graph.find_nodes(op="placeholder")
    return {storage_of(node.meta["val"]) for node in inputs}


def require_same_parameters(wrong: Callable[..., Any], right: Callable[..., Any]) -> None:
    """Raise `InternalError` unless both take the same parameters: names, kinds, order, defaults.

    With other parameters the first call of the fault would raise a `TypeError`, and each program
    that reaches it would seem to kill the fault.
    """
    given, expected = _without_annotations(wrong), _without_annotations(right)
    if given != expected:
        raise InternalError(
            f"fault '{fault_name(wrong)}': {wrong.__name__}{given} does not take the parameters"
            f" of the function that it replaces: {right.__qualname__}{expected}"
        )


def _without_annotations(function: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return inspect.Signature(parameters)
