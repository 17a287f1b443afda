"""Handwritten graph passes: functions of torch that take a graph and change it.

Such a function fires when it changes a graph itself; changes by a pass that it calls belong to that
pass. Nodes, their order, targets and arguments are compared; metadata is not.
"""

from __future__ import annotations

import dis
import functools
import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType
from typing import Any
from unittest import mock

from torch import fx
from torch._inductor.pattern_matcher import Match, PatternMatcherPass

from aliasproof.generators.sites.patterns import pass_modules
from aliasproof.generators.sites.site import Site, SiteKind, SiteRecorder, location_of

KIND = "graph pass"
# Modules with passes over a graph between capture and lowering, besides those of `fx_passes`.
_HOMES = (
    "torch._functorch.compile_utils",
    "torch._functorch.partitioners",
    "torch._inductor.compile_fx",
    "torch._inductor.constant_folding",
    "torch._inductor.freezing",
)
# The packages whose modules may call these passes.
_COMPILERS = ("torch._inductor.", "torch._functorch.", "torch._dynamo.")
# The methods that change a graph. `prepend` of a node moves another node.
_CHANGES = {
    *(name for name in vars(fx.Graph) if name.startswith(("call_", "create_", "erase_", "node_"))),
    *(
        "eliminate_dead_code",
        "graph_copy",
        "prepend",
        "replace_all_uses_with",
        "replace_input_with",
    ),
    *(name for name in vars(fx.Node) if name.startswith(("update_", "insert_", "replace_"))),
    *(name for name in vars(Match) if name.startswith("replace_")),
}
_PARTS = {"target", "args", "kwargs"}  # attributes of a node that a pass may set


def sites() -> list[Site]:
    """Each function of torch's compilers that takes a graph, takes no node, and changes graphs."""
    return [
        Site(
            _name(function),
            KIND,
            function.__module__.rpartition(".")[2],
            *location_of(function),
            "the function changes a graph: its nodes, their order, targets or arguments",
        )
        for function in graph_passes()
    ]


@functools.cache
def graph_passes() -> tuple[FunctionType, ...]:
    """The functions of `sites`, by module and line."""
    homes = (*pass_modules(), *map(importlib.import_module, _HOMES))
    found = {
        function
        for module in homes
        for function in vars(module).values()
        if isinstance(function, FunctionType)
        and function.__module__ == module.__name__
        and not inspect.isgeneratorfunction(inspect.unwrap(function))
        and _takes_a_graph(function)
        and _changes_graphs(inspect.unwrap(function).__code__)
    }
    return tuple(
        sorted(found, key=lambda function: (function.__module__, location_of(function)[1]))
    )


def _name(function: FunctionType) -> str:
    return f"{KIND}/{function.__module__.removeprefix('torch.')}.{function.__name__}"


def _takes_a_graph(function: FunctionType) -> bool:
    """Whether the annotations say so; without one, the usual names of graph parameters count."""
    signature = inspect.signature(function)
    parameters = [(name, given.annotation) for name, given in signature.parameters.items()]
    parameters = [
        (name, str(getattr(annotation, "__name__", annotation)))
        for name, annotation in [*parameters, ("returned", signature.return_annotation)]
    ]
    graphs = any(
        (annotation.endswith(("Graph", "GraphModule")) and name != "returned")
        or (annotation == "_empty" and name in ("graph", "gm"))
        for name, annotation in parameters
    )
    return graphs and not any(
        annotation.endswith("Node") or name == "node" for name, annotation in parameters
    )


def _changes_graphs(code: CodeType) -> bool:
    if _CHANGES & set(code.co_names):
        return True
    if any(
        step.opname == "STORE_ATTR" and step.argval in _PARTS for step in dis.get_instructions(code)
    ):
        return True
    return any(_changes_graphs(inner) for inner in code.co_consts if isinstance(inner, CodeType))


# --- which of them change a graph -----------------------------------------------------------------


@contextmanager
def recorded(recorder: SiteRecorder) -> Iterator[None]:
    """Record the names of passes that change a graph in this block."""
    ours, apply = _watched_passes(recorder)
    with ExitStack() as patches:
        for module in [sys.modules[name] for name in sys.modules if name.startswith(_COMPILERS)]:
            for variable, value in list(vars(module).items()):
                if isinstance(value, FunctionType) and value in ours:
                    patches.enter_context(mock.patch.object(module, variable, ours[value]))
        # Changes by a pattern do not belong to the pass that applies the pattern.
        patches.enter_context(mock.patch.object(PatternMatcherPass, "apply", apply))
        yield


@functools.cache
def _watched_passes(
    recorder: SiteRecorder,
) -> tuple[dict[FunctionType, Callable[..., Any]], Callable[..., Any]]:
    """The passes that report their names, and a matcher's `apply` that reports nothing."""
    watched = _Watched()
    ours = {
        function: _noting(function, functools.partial(recorder.fired.add, _name(function)), watched)
        for function in graph_passes()
    }
    return ours, _noting(PatternMatcherPass.apply, lambda: None, watched)


def _noting(
    function: Callable[..., Any], changed: Callable[[], None], watched: _Watched
) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        graph = _graph_among((*args, *kwargs.values()))
        if graph is None:
            return function(*args, **kwargs)
        watched.enter(graph)
        try:
            result = function(*args, **kwargs)
        finally:
            by_itself = watched.leave(graph)
        if by_itself or _is_another(result, graph):
            changed()
        return result

    return run


def _graph_among(values: tuple[object, ...]) -> fx.Graph | None:
    for value in values:
        if isinstance(value, fx.GraphModule):
            return value.graph
        if isinstance(value, fx.Graph):
            return value
    return None


def _is_another(result: object, graph: fx.Graph) -> bool:
    """Whether a pass returns other graphs than its argument: parts of it, or one of other calls."""
    if isinstance(result, tuple):
        return any(isinstance(part, fx.GraphModule) for part in result)
    made = _graph_among((result,))
    if made is None or made is graph:
        return False
    return [node.target for node in made.nodes] != [node.target for node in graph.nodes]


class _Watched:
    """The running passes, each with its graph's state at the last entry to or exit from a pass."""

    def __init__(self) -> None:
        self.running: list[tuple[fx.Graph, list[object]]] = []
        self.changed: list[bool] = []

    def enter(self, graph: fx.Graph) -> None:
        """Note the start of a pass."""
        state = _state_of(graph)
        self._compare(graph, state)
        self.running.append((graph, state))
        self.changed.append(False)

    def leave(self, graph: fx.Graph) -> bool:
        """Note the end of a pass; whether the pass itself changed the graph."""
        state = _state_of(graph)
        self._compare(graph, state)
        self.running.pop()
        if self.running and self.running[-1][0] is graph:
            self.running[-1] = graph, state
        return self.changed.pop()

    def _compare(self, graph: fx.Graph, state: list[object]) -> None:
        if not self.running or self.running[-1][0] is not graph:
            return
        before = self.running[-1][1]
        same = len(before) == len(state) and all(map(operator.is_, before, state))
        self.changed[-1] = self.changed[-1] or not same


def _state_of(graph: fx.Graph) -> list[object]:
    """The parts that a change replaces: other arguments of a node are another tuple."""
    return [part for node in graph.nodes for part in (node, node.target, node.args, node.kwargs)]


KINDS = (SiteKind(KIND, sites, recorded),)
