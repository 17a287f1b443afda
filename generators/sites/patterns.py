"""The patterns of Inductor: each entry of each `PatternMatcherPass` is a site.

Passes are found where torch keeps them: in a global of a module of `torch._inductor.fx_passes`, or
in a list or dictionary there. Entries that torch makes lazily exist after one run of the passes
(see `run_passes`). That run also shows the passes that a function makes anew for each graph.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast
from unittest import mock

import torch
from torch import fx
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import fx_passes
from torch._inductor.fx_passes import freezing_patterns, joint_graph, post_grad, pre_grad
from torch._inductor.pattern_matcher import (
    GraphPatternEntry,
    LoweringPatternEntry,
    Match,
    PatternEntry,
    PatternExpr,
    PatternMatcherPass,
    ReplacementPatternEntry,
    _return_true,
)
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.generators.sites.site import (
    Site,
    SiteKind,
    SiteRecorder,
    location_of,
    operator_name,
)

# --- trivial run ----------------------------------------------------------------------------------
#
# One run of Inductor's passes on a graph without calls.
#
# It shows what only a run can show: which passes an option switches on, the patterns that torch
# makes lazily, and the passes that a function makes anew for each graph.


CPU = torch.device("cpu")


def run_passes() -> None:
    """Run the passes before differentiation, on the joint graph, after it, and those of freezing.

    The joint graph's passes get the device of a compilation, so that patterns are made once.
    """
    for passes in PASSES.values():
        run_on_empty_graph(passes)


def run_on_empty_graph(passes: Callable[[fx.GraphModule], object]) -> None:
    """Run passes on a graph that only returns its input."""
    mode = FakeTensorMode()
    graph = fx.Graph()
    given = graph.placeholder("given")
    given.meta["val"] = mode.from_tensor(torch.ones(2))
    graph.output((given,))
    with V.set_fake_mode(mode), torch.no_grad():
        passes(fx.GraphModule(torch.nn.Module(), graph))


def differentiate() -> None:
    """Compile a minimal function with a gradient that saves a tensor for its backward pass."""
    aot_function(
        torch.sin,
        fw_compiler=lambda graph, inputs: graph,
        partition_fn=min_cut_rematerialization_partition,
    )(torch.ones(2, requires_grad=True))


def _examples(graph: fx.GraphModule) -> list[object]:
    return [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]


# By name of the layer.
PASSES: dict[str, Callable[[fx.GraphModule], object]] = {
    "pre-grad": lambda graph: pre_grad.pre_grad_passes(graph, _examples(graph)),
    "joint graph": lambda graph: joint_graph.joint_graph_passes(graph, CPU),
    "post-grad": lambda graph: post_grad.post_grad_passes(graph, is_inference=True),
    "freezing": lambda graph: freezing_patterns.freezing_passes(graph, _examples(graph)),
}


# --- patterns -------------------------------------------------------------------------------------


@functools.cache
def pattern_sites() -> tuple[tuple[Site, PatternEntry], ...]:
    """Each entry of each pass, as a site. An entry that several passes share is one site."""
    names: Counter[str] = Counter()
    sites: dict[int, tuple[Site, PatternEntry]] = {}
    for place, matcher in matcher_passes():
        for entry in entries_of(matcher):
            if id(entry) in sites:
                continue
            name = f"{place}/{_rule(entry)}({root_of(entry)})"
            names[name] += 1
            file, line = location_of(code_of(entry))
            fires_when = f"calls match the pattern of {root_of(entry)}"
            if (check := check_of(entry)) is not _return_true:
                where, start = location_of(check)
                fires_when += f", and {check.__qualname__} (torch/{where}:{start}) accepts them"
            number = f"#{names[name]}" if names[name] > 1 else ""
            layer = place.partition(".")[0]
            site = Site(name + number, "pattern", layer, file, line, fires_when)
            sites[id(entry)] = site, entry
    return tuple(sites.values())


@functools.cache
def matcher_passes() -> tuple[tuple[str, PatternMatcherPass], ...]:
    """Each pass with the place where torch keeps it, such as `joint_graph.patterns`.

    A pass that is made anew for each graph is represented by one such pass and the module's name.
    """
    made: list[tuple[str, PatternMatcherPass]] = []
    initialize = PatternMatcherPass.__init__

    def noting_the_maker(matcher: PatternMatcherPass, *args: Any, **kwargs: Any) -> None:
        initialize(matcher, *args, **kwargs)
        module = sys._getframe(1).f_globals["__name__"].rpartition(".")[2]
        made.append((module, matcher))

    with mock.patch.object(PatternMatcherPass, "__init__", noting_the_maker):
        modules = pass_modules()
        run_passes()
    places: dict[int, tuple[str, PatternMatcherPass]] = {}
    for module in modules:
        name = module.__name__.rpartition(".")[2]
        for variable, value in vars(module).items():
            for place, matcher in _passes_in(f"{name}.{variable}", value):
                # Several modules may have it. The shortest name is that of the module that runs it.
                known, _ = places.get(id(matcher), (place, matcher))
                places[id(matcher)] = min(known, place, key=lambda text: (len(text), text)), matcher
    for place, matcher in made:
        places.setdefault(id(matcher), (place, matcher))
    return tuple(sorted(places.values(), key=lambda kept: kept[0]))


@functools.cache
def rules() -> dict[str, PatternEntry]:
    """All entries of the installed Inductor, by the names of their sites."""
    return {site.name: entry for site, entry in pattern_sites()}


@contextmanager
def recorded(recorder: SiteRecorder) -> Iterator[None]:
    """Record the names of entries whose rewrite torch calls, and of those that refuse a match.

    An entry that was registered after the sites were read fires as `unlisted/...`.
    """
    by_entry = {id(entry): site.name for site, entry in pattern_sites()}
    # A pass that is made anew for each graph has new entries, with the same functions.
    by_code = {_bytecode(entry): site.name for site, entry in pattern_sites()}

    def note(entry: PatternEntry) -> None:
        name = by_entry.get(id(entry)) or by_code.get(_bytecode(entry))
        recorder.fired.add(name or f"unlisted/{_rule(entry)}({root_of(entry)})")

    checks = [(entry, entry.extra_check) for _, entry in pattern_sites()]
    with ExitStack() as patches:
        for rule in (LoweringPatternEntry, GraphPatternEntry, ReplacementPatternEntry):
            patches.enter_context(mock.patch.object(rule, "apply", _noting(rule.apply, note)))
        try:
            for site, entry in pattern_sites():
                if entry.extra_check is not _return_true:
                    entry.extra_check = _noting_refusal(entry.extra_check, recorder, site.name)
            yield
        finally:
            for entry, check in checks:
                entry.extra_check = check


def _noting(
    apply: Callable[..., None], note: Callable[[PatternEntry], None]
) -> Callable[..., None]:
    def noted(entry: PatternEntry, *args: Any, **kwargs: Any) -> None:
        note(entry)
        apply(entry, *args, **kwargs)

    return noted


@functools.cache
def _noting_refusal(
    check: Callable[..., Any], recorder: SiteRecorder, name: str
) -> Callable[..., Any]:
    @functools.wraps(check)
    def asked(match: Match) -> Any:
        accepted = check(match)
        # A check that depends on a symbolic size is left to torch: `bool` would add a guard.
        if not isinstance(accepted, torch.SymBool) and not accepted:
            recorder.refused.add(name)
        return accepted

    return asked


def _bytecode(entry: PatternEntry) -> object:
    return getattr(code_of(entry), "__code__", None)


def entries_of(matcher: PatternMatcherPass) -> list[PatternEntry]:
    """The entries of a pass, each once, in the order in which torch tries them by root."""
    entries = (entry for of_root in matcher.patterns.values() for entry in of_root)
    return list({id(entry): entry for entry in entries}.values())


def code_of(entry: PatternEntry) -> Callable[..., Any]:
    """The function that rewrites; for a traced replacement, its search function."""
    if isinstance(entry, ReplacementPatternEntry):
        searched = variables_of(entry.extra_check).get("search_fn")
        return cast(Callable[..., Any], searched or entry.normalize_args)
    return cast(Callable[..., Any], getattr(entry, "handler", entry.apply))


def check_of(entry: PatternEntry) -> Callable[..., Any]:
    """The check of an entry besides its pattern, as it was registered with torch."""
    check = inspect.unwrap(entry.extra_check)
    if isinstance(entry, ReplacementPatternEntry):
        check = variables_of(check).get("extra_check", check)
    return cast(Callable[..., Any], check)


def variables_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The variables of enclosing functions that a function uses."""
    return inspect.getclosurevars(inspect.unwrap(function)).nonlocals


def names_in(code: CodeType) -> Iterator[str]:
    """The names and strings that a function uses, also in nested functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)
        elif isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from (element for element in constant if isinstance(element, str))


def reached_from(check: Callable[..., Any], depth: int = 3) -> Iterator[FunctionType]:
    """A check, and the functions of its module that it names, up to some calls deep."""
    function = inspect.unwrap(check)
    if not isinstance(function, FunctionType):
        return
    yield function
    if depth:
        for name in names_in(function.__code__):
            called = function.__globals__.get(name)
            if isinstance(called, FunctionType) and called.__module__ == function.__module__:
                yield from reached_from(called, depth - 1)


def parts_of(pattern: object) -> Iterator[PatternExpr]:
    """A pattern and all its subpatterns."""
    if isinstance(pattern, PatternExpr):
        yield pattern
        for name in ("args", "kwargs", "pattern", "outputs", "inner_pattern"):
            yield from parts_of(vars(pattern).get(name))
    elif isinstance(pattern, dict):
        yield from parts_of(list(pattern.values()))
    elif isinstance(pattern, list | tuple):
        for element in pattern:
            yield from parts_of(element)


def root_of(entry: PatternEntry) -> str:
    """The operator of the pattern's last call; the first one if there are several."""
    operators = getattr(entry.pattern, "fns", ("anything",))
    return operator_name(operators[0])


def _rule(entry: PatternEntry) -> str:
    given = getattr(entry, "pattern_name", None)
    return str(given or code_of(entry).__qualname__.replace(".<locals>", ""))


@functools.cache
def pass_modules() -> tuple[ModuleType, ...]:
    """The modules in which Inductor keeps its passes."""
    prefix = f"{fx_passes.__name__}."
    found = sorted(module.name for module in pkgutil.walk_packages(fx_passes.__path__, prefix))
    return tuple(importlib.import_module(name) for name in found)


def _passes_in(place: str, value: object) -> Iterator[tuple[str, PatternMatcherPass]]:
    if isinstance(value, PatternMatcherPass):
        yield place, value
    elif isinstance(value, dict):
        for key, element in list(value.items()):
            yield from _passes_in(f"{place}[{key}]", element)
    elif isinstance(value, list | tuple):
        for index, element in enumerate(value):
            if isinstance(element, PatternMatcherPass):
                yield f"{place}[{index}]", element


KINDS = (SiteKind("pattern", lambda: [site for site, _ in pattern_sites()], recorded),)
