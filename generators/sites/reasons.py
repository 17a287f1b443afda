"""Why a site never fired: what it needs and the programs or settings do not provide.

A reason is computed, not looked up:

- which setting of Inductor starts a pass: each setting that passes read is flipped, and the passes
  run on a graph without calls;
- the replacement of a pattern, or the entry of a table, may be called only during code generation;
- a pattern, or the entry of a table, may need calls that no program can make.

A site without a reason is a gap: programs could reach it, and do not.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import getitem
from types import FrameType, FunctionType

import torch
from torch._inductor import config
from torch._inductor.pattern_matcher import (
    LoweringPatternEntry,
    PatternEntry,
    PatternMatcherPass,
)
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from aliasproof.generators.coverage import why_not_applicable
from aliasproof.generators.sites import graph_passes, operator_tables, patterns, wrappers
from aliasproof.generators.sites.patterns import names_in
from aliasproof.generators.sites.site import Site
from aliasproof.ir.errors import UserError
from aliasproof.ir.schemas import Kind, facts, resolve


@dataclass(frozen=True, slots=True)
class Conditions:
    """How the programs ran: with Inductor or not, its settings, and what else changes a graph."""

    inductor: bool = True
    settings: Mapping[str, object] = field(default_factory=dict)
    gradients: bool = False
    freezing: bool = False
    generates_code: bool = False


def why_never_fired(site: Site, conditions: Conditions) -> str | None:
    """The reason why a site did not fire; None for a gap."""
    if site.file.startswith("_inductor/") and not conditions.inductor:
        return "is Inductor's: the target does without"
    if site.kind == "pattern":
        place = site.name.partition("/")[0]
        entry = patterns.rules()[site.name]
        return (
            _not_started(_passes().get(place), conditions)
            or _is_lowered(entry, conditions)
            or _waits_for_others(entry, conditions)
        )
    if site.kind == graph_passes.KIND:
        function = _functions()[site.name]
        return _not_started(function.__code__, conditions) or _of_collectives(function, conditions)
    if site.kind == "lowering" and not conditions.generates_code:
        return "needs generated code: target inductor"
    if site.kind == wrappers.KIND:
        return _view_reason(site.name.partition("/")[2])
    if site.kind in {table.name for table in operator_tables.KINDS}:
        return _operator_reason(site.name.partition("/")[2])
    return None


# Operators that freezing makes of constant weights.
PACKED = ("mkldnn", "onednn")


@functools.cache
def _passes() -> dict[str, int]:
    # A pass that is made anew for each graph has a place without a dot, and runs on every graph.
    return {place: id(matcher) for place, matcher in patterns.matcher_passes() if "." in place}


@functools.cache
def _functions() -> dict[str, FunctionType]:
    functions = [inspect.unwrap(function) for function in graph_passes.graph_passes()]
    return dict(zip((site.name for site in graph_passes.sites()), functions, strict=True))


# --- passes that a setting starts -----------------------------------------------------------------


def _not_started(started: object, conditions: Conditions) -> str | None:
    """Why a pass did not run. `started` is the code of a function, or the identity of a matcher."""
    settings = _sorted(conditions)
    if started is None or started in _started_by(settings):
        return None
    if started in _started_by(settings, "freezing"):
        return None if conditions.freezing else "runs only with the passes of freezing"
    if started in _started_by_gradients():
        return None if conditions.gradients else "runs only with gradients"
    for change, others in _started_by_changes(settings):
        if started in others:
            return f"runs only with torch._inductor.config.{change}"
    return None


@functools.cache
def _started_by(settings: tuple[tuple[str, object], ...], *layers: str) -> frozenset[object]:
    """The passes that run on a graph without calls. Passes of freezing run only if named."""
    started: set[object] = set()
    for layer in layers or [name for name in patterns.PASSES if name != "freezing"]:
        run = functools.partial(patterns.run_on_empty_graph, patterns.PASSES[layer])
        with config.patch(dict(settings)):
            started |= _called_in(run)
    return frozenset(started)


@functools.cache
def _started_by_gradients() -> frozenset[object]:
    """The passes that run when a graph is differentiated."""
    return frozenset(_called_in(patterns.differentiate))


def _called_in(run: Callable[[], object]) -> set[object]:
    """The code of the functions that a run calls, and the identities of matchers."""
    called: set[object] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)
            if frame.f_code is PatternMatcherPass.apply.__code__:
                called.add(id(frame.f_locals["self"]))

    before = sys.getprofile()
    sys.setprofile(note)
    # Settings that torch does not expect together may raise. Passes that ran until then count.
    with suppress(Exception):
        run()
    sys.setprofile(before)
    return called


@functools.cache
def _started_by_changes(
    settings: tuple[tuple[str, object], ...],
) -> list[tuple[str, frozenset[object]]]:
    """The passes that run with one more setting, with this setting as a person writes it."""
    return [
        # Bypasses the cache: a dictionary among the values has no hash.
        (written, _started_by.__wrapped__((*settings, (name, value))))
        for name, value, written in _changes(dict(settings))
    ]


def _changes(settings: Mapping[str, object]) -> Iterator[tuple[str, object, str]]:
    """Each setting that passes read: flipped, or a dictionary with the names of passes."""
    read, by_dictionary = _names_in_passes(), _names_by_dictionary()
    for name in config.get_config_copy():
        if name.rpartition(".")[2] not in read:
            continue
        value = settings.get(name, functools.reduce(getattr, name.split("."), config))
        if isinstance(value, bool):
            yield name, not value, f"{name} = {not value}"
        elif isinstance(value, dict):
            for names in by_dictionary.values():
                chosen = {**value, **{key: {} for key in names}}
                yield name, chosen, f"{name} that has the name of the pass"


def _names_by_dictionary() -> dict[str, list[str]]:
    """The names of passes that one dictionary keeps, by the place of the dictionary."""
    names: dict[str, list[str]] = {}
    for place in _passes():
        dictionary, bracket, key = place.rstrip("]").partition("[")
        if bracket and not key.isdigit():
            names.setdefault(dictionary, []).append(key)
    return names


@functools.cache
def _names_in_passes() -> frozenset[str]:
    """Every name that the functions of the modules with passes read."""
    return frozenset(
        name
        for module in patterns.pass_modules()
        for value in vars(module).values()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__
        for name in names_in(value.__code__)
    )


def _of_collectives(function: FunctionType, conditions: Conditions) -> str | None:
    """For passes for several machines: their modules use collectives and are not started else."""
    functions = [
        value
        for value in vars(sys.modules[function.__module__]).values()
        if isinstance(value, FunctionType) and value.__module__ == function.__module__
    ]
    started = _started_by(_sorted(conditions)) | _started_by_gradients()
    passes = [inspect.unwrap(one) for one in graph_passes.graph_passes()]
    if any(one in passes and one.__code__ in started for one in functions):
        return None
    named = any("_c10d_functional" in name for one in functions for name in names_in(one.__code__))
    return "is for collectives of torch.distributed" if named else None


def _sorted(conditions: Conditions) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(conditions.settings.items()))


# --- patterns that no program can match -----------------------------------------------------------


def _is_lowered(entry: PatternEntry, conditions: Conditions) -> str | None:
    """For a match whose replacement is called only when the graph is lowered."""
    lowered = isinstance(entry, LoweringPatternEntry) and bool(entry.handler.__code__.co_names)
    if not lowered or conditions.generates_code:
        return None
    return "its replacement is called when a graph is lowered: target inductor"


def _waits_for_others(entry: PatternEntry, conditions: Conditions) -> str | None:
    """For calls in a pattern that no straight-line program makes; it may spell out a backward."""
    parts = patterns.parts_of(entry.pattern)
    operators = [called for part in parts for called in getattr(part, "fns", ())[:1]]
    of_aten = [it for it in operators if isinstance(it, OpOverload | OpOverloadPacket)]
    for called in of_aten:
        namespace = str(called).partition(".")[0]
        packed = namespace in PACKED
        if (packed and not conditions.freezing) or namespace not in (*PACKED, "aten", "prims"):
            return f"waits for calls of {namespace}, which no program makes"
    functions = [it for it in operators if isinstance(it, HigherOrderOperator)]
    if functions and not functions[0].name().startswith("auto_functionalized"):
        return f"waits for calls of {functions[0].name()}, which takes functions or kernels"
    python = [it for it in operators if not isinstance(it, HigherOrderOperator)]
    if len(of_aten) < sum(it is not getitem for it in python):
        return "matches functions of Python or modules: a straight line calls ATen"
    return None


# --- operators ------------------------------------------------------------------------------------


def _operator_reason(name: str) -> str | None:
    """Why no graph of a program calls an operator; `name` is as in its site."""
    namespace, _, plain = name.partition(".")
    if isinstance(getattr(getattr(torch.ops, namespace, None), plain, None), OpOverloadPacket):
        return "is for a name without an overload: a graph calls overloads"
    try:
        operator = resolve(name)
    except UserError:
        return None
    if operator.name() not in _dispatched():
        return "is TorchScript's: the dispatcher does not have it"
    if facts(operator).kind is Kind.OUT:
        return "is an out= form: functionalization calls the functional form"
    return why_not_applicable(operator)


@functools.cache
def _dispatched() -> frozenset[str]:
    return frozenset(torch._C._dispatch_get_all_op_names())


def _view_reason(name: str) -> str | None:
    """The same for the name of a view: `slice_Tensor` is `aten.slice.Tensor`."""
    plain, _, overload = name.rpartition("_")
    for operator in (f"aten.{name}.default", f"aten.{plain}.{overload}"):
        with suppress(UserError):
            return why_not_applicable(resolve(operator))
    return None
