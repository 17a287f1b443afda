"""`PassWatch`: the graph of one compilation after each pass that changed it.

A compiler calls its passes from a few functions, here *drivers*: `post_grad_passes` of Inductor,
`aot_dispatch_base_graph` of AOTAutograd. Every function that a driver calls counts as a pass. So
no list of passes must be kept, and what runs outside of a `GraphTransformObserver` is seen too,
such as `view_to_reshape` or `eliminate_dead_code`. When such a function returns and the graph of
the driver has changed, a copy of the graph is kept under the name of the function.

Python reports returns through `sys.setprofile`: no function of torch is replaced for this.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, TypeAlias

from torch import fx

from aliasproof.ir.errors import InternalError
from aliasproof.targets.graph_snapshots import copied
from aliasproof.targets.user_builds import YOUR_PASS
from aliasproof.targets.user_targets import UserPass

_Text: TypeAlias = tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class Version:
    """A graph as it was after a pass. `part` is the part of the compiler that calls the pass."""

    part: str
    name: str
    graph: fx.GraphModule


@dataclass(frozen=True, slots=True)
class Driver:
    """A function that calls passes: its part of the compiler, and its variable for the graph."""

    function: Callable[..., Any]
    part: str
    variable: str


CAPTURE = ("Dynamo", "captured graph")  # what the first driver was given
# Functions that make a graph: their names would say little.
_MAKERS = {"_create_graph_and_save_traced_inputs": "functionalization"}
# Methods of an observer, which run the pass that the observer names.
_OBSERVED = ("apply_graph_pass", "apply_gm_pass")
# What targets do so that a graph runs in eager, which every version needs
# (`aliasproof.trials.choosable`).
_OF_TARGETS = ("give_foreach_results",)
_PATTERNS = "patterns"  # the driver that applies patterns runs within another driver


@functools.cache
def drivers() -> Mapping[CodeType, Driver]:
    """The drivers by their code: those in torch, and in targets that call passes of torch."""
    # Imported here: this takes two seconds, and attribution is rare.
    from torch._functorch import partitioners  # noqa: PLC0415
    from torch._functorch._aot_autograd import graph_capture, graph_compile  # noqa: PLC0415
    from torch._inductor import compile_fx, pattern_matcher  # noqa: PLC0415
    from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad  # noqa: PLC0415

    from aliasproof.targets import aot, inductor_fx, inductor_reinplace  # noqa: PLC0415

    all_drivers = (
        Driver(pre_grad.pre_grad_passes, "pre_grad", "gm"),
        Driver(pre_grad.fuse_fx, "pre_grad", "gm"),
        Driver(graph_capture.aot_dispatch_base_graph, "AOTAutograd", "fw_module"),
        Driver(graph_capture.aot_dispatch_autograd_graph, "AOTAutograd", "fx_g"),
        Driver(graph_compile.aot_stage2_inference, "AOTAutograd", "fw_module"),
        Driver(compile_fx.partition_fn, "joint_graph", "gm"),
        Driver(partitioners.min_cut_rematerialization_partition, "partitioner", "joint_module"),
        Driver(partitioners.default_partition, "partitioner", "joint_module"),
        Driver(joint_graph.joint_graph_passes, "joint_graph", "graph"),
        Driver(pattern_matcher.PatternMatcherPass.apply, _PATTERNS, "graph"),
        Driver(inductor_fx.passes_only, "post_grad", "graph"),
        Driver(inductor_reinplace.reinplacing, "post_grad", "graph"),
        Driver(aot.compile_graph, YOUR_PASS, "graph"),
        Driver(post_grad.post_grad_passes, "post_grad", "gm"),
    )
    return {driver.function.__code__: driver for driver in all_drivers}


@dataclass(slots=True)
class PassWatch:
    """The versions of a graph, in the order in which passes made them."""

    versions: list[Version] = field(default_factory=list)
    _last: dict[tuple[str, ...], _Text] = field(default_factory=dict)  # by the placeholders

    def forget(self) -> None:
        """Forget all versions."""
        self.versions.clear()
        self._last.clear()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """While this context is entered, what drivers call is seen."""
        drivers()  # before the watch begins, since this imports
        before = sys.getprofile()
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _on_event(self, frame: FrameType, event: str, returned: object) -> None:
        try:
            self._note(frame, event, returned)
        except Exception as error:
            # Otherwise it would pass for an error of the compiler.
            message = f"the passes cannot be watched: {type(error).__name__}: {error}"
            raise InternalError(message) from error

    def _note(self, frame: FrameType, event: str, returned: object) -> None:
        caller = frame.f_back
        if caller is None or event not in ("call", "return"):
            return
        driver = drivers().get(caller.f_code)
        if driver is None:
            return
        variable = caller.f_locals.get(driver.variable)
        graph = _after_pass(_graph(variable), _graph(returned))
        if graph is None or not _is_of_the_function(graph, caller):
            return
        names = tuple(placeholders(graph))
        # Before the first call, nothing was done yet. Later, only a return can show a change.
        if event == "call" and names in self._last:
            return
        text = _text(graph)
        told = event == "return" or not self.versions
        if told and text != self._last.get(names) and frame.f_code.co_name not in _OF_TARGETS:
            root = _root(graph, _first(returned), _first(variable))
            part, name = part_and_pass(_with_callers(frame)) if event == "return" else CAPTURE
            # Torch can write code for a graph that Python does not read, and a pass may leave it to
            # a later one to bring calls in order. Such a graph cannot run: the first version after
            # it that can is asked.
            with contextlib.suppress(SyntaxError):
                if _is_in_order(graph):
                    self.versions.append(Version(part, name, copied(graph, root)))
        self._last[names] = text


def part_and_pass(frames: Iterable[FrameType]) -> tuple[str, str]:
    """The part of the compiler and the name of the pass that runs in a frame that a driver called.

    `frames` are this one and its callers. The pass has the name of its function, unless an observer
    names it.
    """
    name, pattern = "", ""
    for frame in frames:
        name = name or _MAKERS.get(frame.f_code.co_name, frame.f_code.co_name)
        if frame.f_code.co_name in _OBSERVED:
            name = _observed_name(frame)
        if frame.f_code is UserPass.__call__.__code__:
            name = frame.f_locals["self"].__name__
        driver = drivers().get(frame.f_code)
        if driver is None:
            continue
        if driver.part != _PATTERNS:
            return driver.part, name + pattern
        pattern = _pattern_name(frame)
        name = frame.f_locals["self"].pass_name or _PATTERNS
    return "", name


def _pattern_name(frame: FrameType) -> str:
    """The pattern that matched, in parentheses: its handler, or the function that it was traced of.

    Inductor keeps that function in a closure alone.
    """
    entry = frame.f_locals.get("entry")
    check: Any = getattr(entry, "extra_check", None)
    cells = dict(
        zip(
            getattr(getattr(check, "__code__", None), "co_freevars", ()),
            getattr(check, "__closure__", None) or (),
            strict=True,
        )
    )
    traced = cells["search_fn"].cell_contents if "search_fn" in cells else None
    name = getattr(getattr(entry, "handler", traced), "__name__", "")
    return f" ({name})" if name.strip("_") else ""


def _observed_name(frame: FrameType) -> str:
    """The name that an observer has for its pass. Custom passes are told by their function."""
    name: str = frame.f_locals["self"].passname
    function = frame.f_locals["pass_fn"]
    while isinstance(function, functools.partial):
        function = function.func
    own = getattr(function, "__name__", type(function).__name__)
    return f"{name} ({own})" if "custom" in name else name


def _is_of_the_function(graph: fx.Graph, caller: FrameType) -> bool:
    """Whether a graph is that of the compiled function.

    Drivers also run on the bodies of higher-order operators, and on patterns that Inductor traces.
    Such a graph has other placeholders than the graph of the driver around.
    """
    expected = placeholders(graph)
    for frame in _with_callers(caller.f_back):
        driver = drivers().get(frame.f_code)
        if driver is not None:
            outer = _graph(frame.f_locals.get(driver.variable))
            if outer is None or placeholders(outer) != expected:
                return False
    return True


def _with_callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _after_pass(current: fx.Graph | None, returned: fx.Graph | None) -> fx.Graph | None:
    """The graph of a driver after a pass, which may have returned another one."""
    # The driver has not assigned it yet. A graph of other placeholders is a part, such as one half
    # of a joint graph.
    if returned is None:
        return current
    if current is None or placeholders(returned) == placeholders(current):
        return returned
    return current


def _graph(value: object) -> fx.Graph | None:
    """The graph in a value of a driver, or in what a pass returns: alone, or first of a tuple."""
    value = _first(value)
    if isinstance(value, fx.GraphModule):
        return value.graph
    return value if isinstance(value, fx.Graph) else None


def _root(graph: fx.Graph, *others: object) -> fx.GraphModule | None:
    """The module with what a graph names: its owner, or another one where modules share a graph."""
    nodes = (node for node in graph.nodes if node.op in ("get_attr", "call_module"))
    named = {str(node.target).partition(".")[0] for node in nodes}
    for value in (graph.owning_module, *others):
        if isinstance(value, fx.GraphModule) and all(hasattr(value, name) for name in named):
            return value
    return None


def _first(value: object) -> object:
    return value[0] if isinstance(value, tuple) and value else value


def placeholders(graph: fx.Graph) -> list[str]:
    """The names of the placeholders of a graph."""
    return [node.name for node in graph.nodes if node.op == "placeholder"]


def _is_in_order(graph: fx.Graph) -> bool:
    """Whether each value is there before a node reads it."""
    before: set[fx.Node] = set()
    for node in graph.nodes:
        if not before.issuperset(node.all_input_nodes):
            return False
        before.add(node)
    return True


def _text(graph: fx.Graph) -> _Text:
    """What makes two graphs differ: nodes, operators and arguments, but no metadata."""
    # As text: 1, 1.0 and True are equal.
    return tuple(
        (node.name, node.op, node.target, repr(node.args), repr(node.kwargs))
        for node in graph.nodes
    )
