"""`SteppedFunction`: a compiled function that can run in the state after any compilation step.

AOTAutograd wraps what it compiles, from the outside to the inside: wrappers for duplicate inputs
and for inputs on one storage, the runtime wrapper, the compiled graph. While a function compiles
here, a switch is inserted between these layers. It calls either the next layer, or the program in
an earlier state: the function that the wrapper got, the function before functionalization, or the
graph after any pass. Everything around it stays the same, so a difference is the fault of a step up
to this one. The function compiles once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from traceback import walk_stack
from types import FrameType
from typing import Any, NamedTuple, TypeAlias
from unittest import mock

import torch
from torch import fx
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aliasproof.ir.errors import InternalError
from aliasproof.ir.values import clone_inputs
from aliasproof.targets import aot, inductor_fx, inductor_reinplace
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import copied
from aliasproof.targets.user_targets import YOUR_PASS, UserPass

# --- graph versions -------------------------------------------------------------------------------
#
# `PassWatch`: the graph of one compilation after each pass that changed it.
#
# A compiler calls its passes from a few functions, called *drivers* here: `post_grad_passes` of
# Inductor, `aot_dispatch_base_graph` of AOTAutograd. Every function that a driver calls counts as a
# pass. So no list of passes must be maintained, and functions without a `GraphTransformObserver`
# are seen, too, such as `view_to_reshape` or `eliminate_dead_code`. When such a function returns
# and the driver's graph has changed, a copy of the graph is stored under the function's name.
#
# Python reports returns through `sys.setprofile`: no function of torch is replaced for this.


_Text: TypeAlias = tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class Version:
    """A graph after a pass. `part` is the part of the compiler that calls the pass."""

    part: str
    name: str
    graph: fx.GraphModule


@dataclass(frozen=True, slots=True)
class Driver:
    """A function that calls passes: its part of the compiler, and its variable with the graph."""

    function: Callable[..., Any]
    part: str
    variable: str


CAPTURE = ("Dynamo", "captured graph")  # what the first driver got
# Functions that create a graph, and our wrappers of compilers: readable names for them.
_MAKERS = {
    "_create_graph_and_save_traced_inputs": "functionalization",
    "_compile_by_backend": "the compiler of the backend",
}
# Methods of an observer: they run the pass that the observer names.
_OBSERVED = ("apply_graph_pass", "apply_gm_pass")
# What targets call so that every version of a graph can run in eager.
_OF_TARGETS = ("give_foreach_results",)
_PATTERNS = "patterns"  # the driver that applies patterns runs within another driver


@functools.cache
def drivers() -> Mapping[int, Driver]:
    """The drivers by the `id` of their code: those in torch, and in targets that call its passes.

    Code that Dynamo makes can have constants that cannot be hashed.
    """
    # Imported late: this takes two seconds, and attribution is rare.
    from torch._functorch import partitioners  # noqa: PLC0415
    from torch._functorch._aot_autograd import graph_capture, graph_compile  # noqa: PLC0415
    from torch._inductor import compile_fx, pattern_matcher  # noqa: PLC0415
    from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad  # noqa: PLC0415

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
    return {id(driver.function.__code__): driver for driver in all_drivers}


@dataclass(slots=True)
class PassWatch:
    """The versions of a graph, in the order in which passes made them."""

    versions: list[Version] = field(default_factory=list)
    _last: dict[tuple[str, ...], _Text] = field(default_factory=dict)  # by names of placeholders

    def forget(self) -> None:
        """Forget all versions."""
        self.versions.clear()
        self._last.clear()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record versions while this context is entered."""
        drivers()  # before the watch, since this imports
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
            # Otherwise this error would look like an error of the compiler.
            message = f"the passes cannot be watched: {type(error).__name__}: {error}"
            raise InternalError(message) from error

    def _note(self, frame: FrameType, event: str, returned: object) -> None:
        caller = frame.f_back
        if caller is None or event not in ("call", "return"):
            return
        driver = drivers().get(id(caller.f_code))
        if driver is None:
            return
        variable = caller.f_locals.get(driver.variable)
        graph = _after_pass(_graph(variable), _graph(returned))
        if graph is None or not _is_of_the_function(graph, caller):
            return
        names = tuple(placeholders(graph))
        # Record the state before the first call. Later, only a return can show a change.
        if event == "call" and names in self._last:
            return
        text = _text(graph)
        complete = event == "return" or not self.versions
        if complete and text != self._last.get(names) and frame.f_code.co_name not in _OF_TARGETS:
            root = _root(graph, _first(returned), _first(variable))
            callers = (each for each, _ in walk_stack(frame))
            part, name = part_and_pass(callers) if event == "return" else CAPTURE
            # Torch can write code that Python cannot parse, and a pass may leave calls in a wrong
            # order for a later pass to sort. Such a graph cannot run and is skipped: the next one
            # that can run stands for it.
            with contextlib.suppress(SyntaxError):
                if _is_in_order(graph):
                    self.versions.append(Version(part, name, copied(graph, root)))
        self._last[names] = text


def part_and_pass(frames: Iterable[FrameType]) -> tuple[str, str]:
    """The part of the compiler and the name of the pass, for a frame that a driver called.

    `frames` are this frame and its callers. A pass is named by its function, unless an observer
    names it.
    """
    name, pattern = "", ""
    for frame in frames:
        name = name or _MAKERS.get(frame.f_code.co_name, frame.f_code.co_name)
        # `run_python` clears the locals of an error's frames.
        if frame.f_code.co_name in _OBSERVED and frame.f_locals:
            name = _observed_name(frame)
        if frame.f_code is UserPass.__call__.__code__:
            name = frame.f_locals["self"].__name__ if frame.f_locals else ""
        driver = drivers().get(id(frame.f_code))
        if driver is None:
            continue
        if driver.part != _PATTERNS:
            return driver.part, name + pattern
        pattern = _pattern_name(frame)
        name = getattr(frame.f_locals.get("self"), "pass_name", None) or _PATTERNS
    return "", name


def _pattern_name(frame: FrameType) -> str:
    """The pattern that matched, in parentheses: its handler, or the function it was traced from.

    Inductor keeps that function only in a closure.
    """
    entry = frame.f_locals.get("entry")
    check = getattr(entry, "extra_check", None)
    closed = inspect.getclosurevars(check).nonlocals if inspect.isfunction(check) else {}
    name = getattr(getattr(entry, "handler", closed.get("search_fn")), "__name__", "")
    return f" ({name})" if name.strip("_") else ""


def _observed_name(frame: FrameType) -> str:
    """The observer's name for its pass; for a custom pass, the name of its function."""
    name: str = frame.f_locals["self"].passname
    function = frame.f_locals["pass_fn"]
    while isinstance(function, functools.partial):
        function = function.func
    own = getattr(function, "__name__", type(function).__name__)
    return f"{name} ({own})" if "custom" in name else name


def _is_of_the_function(graph: fx.Graph, caller: FrameType) -> bool:
    """Whether a graph is that of the compiled function.

    Drivers also run on the bodies of higher-order operators, and on patterns that Inductor traces.
    The placeholders of such a graph differ from those of the enclosing driver's graph.
    """
    expected = placeholders(graph)
    for frame, _ in walk_stack(caller.f_back):
        driver = drivers().get(id(frame.f_code))
        if driver is not None:
            outer = _graph(frame.f_locals.get(driver.variable))
            if outer is None or placeholders(outer) != expected:
                return False
    return True


def _after_pass(current: fx.Graph | None, returned: fx.Graph | None) -> fx.Graph | None:
    """The graph of a driver after a pass, which may have returned another one."""
    # The driver has not assigned it yet. A graph with other placeholders is only a part, such as
    # one half of a joint graph.
    if returned is None:
        return current
    if current is None or placeholders(returned) == placeholders(current):
        return returned
    return current


def _graph(value: object) -> fx.Graph | None:
    """The graph in a value of a driver or in the result of a pass: itself, or first in a tuple."""
    value = _first(value)
    if isinstance(value, fx.GraphModule):
        return value.graph
    return value if isinstance(value, fx.Graph) else None


def _root(graph: fx.Graph, *others: object) -> fx.GraphModule | None:
    """The module with the attributes of a graph: its owner, or another one that shares it."""
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
    """Whether each value is computed before a node reads it."""
    before: set[fx.Node] = set()
    for node in graph.nodes:
        if not before.issuperset(node.all_input_nodes):
            return False
        before.add(node)
    return True


def _text(graph: fx.Graph) -> _Text:
    """The properties that distinguish two graphs: nodes, operators and arguments, not metadata."""
    # As text, since 1, 1.0 and True are equal.
    return tuple(
        (node.name, node.op, node.target, repr(node.args), repr(node.kwargs))
        for node in graph.nodes
    )


# --- training steps -------------------------------------------------------------------------------
#
# Steps of a compilation for training: a joint graph, which is split into two.
#
# A wrapper of a compiled training function knows how many values the forward graph saves for the
# backward graph. So an earlier graph cannot replace a compiled one, as it does for inference.
# Instead, the function is compiled again with the earlier graph replacing the one that torch made.
# Later passes do not run: the plain partitioner splits a joint graph, and both halves run in eager.


# The graph that a step replaces.
REPLAYED = JOINT, SPLIT, FORWARD, BACKWARD = ("joint", "split", "forward", "backward")


@contextlib.contextmanager
def replaying(graphs: Mapping[str, fx.GraphModule]) -> Iterator[None]:
    """Compilations use these graphs, and run in eager what follows from them."""
    # Imported late: it takes a second, and attribution is rare.
    from torch._functorch._aot_autograd import graph_compile  # noqa: PLC0415
    from torch._functorch.partitioners import default_partition  # noqa: PLC0415

    right = graph_compile.aot_stage2_autograd

    def stage(state: Any, capture: Any, partition: Callable[..., Any], *_: Any) -> Any:
        def split(graph: fx.GraphModule, inputs: Any, **options: Any) -> Any:
            if JOINT not in graphs:
                return partition(graph, inputs, **options)
            # Partitioners change the graph that they get.
            joint = copied(graphs[JOINT].graph, graphs[JOINT])
            joint.graph.eliminate_dead_code()  # removes asserts, which partitioners reject
            return default_partition(joint, inputs, **options)

        return right(
            state, capture, split, _eager(graphs.get(FORWARD)), _eager(graphs.get(BACKWARD))
        )

    with mock.patch.object(graph_compile, "aot_stage2_autograd", stage):
        yield


def _eager(given: fx.GraphModule | None) -> Callable[..., Any]:
    """A compiler that runs a graph as it is, or runs the given one instead."""
    return lambda graph, _: make_boxed_func((graph if given is None else given).forward)


# --- choosable ------------------------------------------------------------------------------------


# Layers besides the wrappers that can be replaced: the function, the graph that Dynamo captures (or
# that a target makes instead of Dynamo), and the graph of AOTAutograd.
WHOLE, CAPTURED, GRAPH = "whole", "captured", "graph"
# Parts of the compiler whose graphs have the interface of the captured graph.
_BEFORE_AOT = ("Dynamo", "pre_grad")
RUNTIME_WRAPPER = "AOTAutograd: RuntimeWrapper"
JOINT_GRAPH = "AOTAutograd: joint graph and its wrapper"


class Step(NamedTuple):
    """The program after a step of its compilation.

    It runs instead of `layer`. `graph` is None for a Python function.
    """

    name: str
    layer: object
    function: Callable[[list[Any]], Any]
    graph: fx.GraphModule | None = None


@dataclass(slots=True)
class SteppedFunction:
    """A compiled function whose steps can be chosen; if `chosen` is None, the target runs as it is.

    Operators for which `undecomposed` is true are not decomposed. `switches` are the existing
    layers. `compilations` counts them, and the last one is recorded; `called` has the numbers of
    those that ran. `halves` are the forward and the backward graph, None in inference.
    `graph_inputs` are clones of the first inputs of the graph.
    """

    watch: PassWatch = field(default_factory=PassWatch)
    chosen: Step | None = None
    graph_inputs: Sequence[object] | None = None
    compilations: int = 0
    called: set[int] = field(default_factory=set)
    undecomposed: Callable[[object], bool] = lambda operator: False
    build: Build | None = None
    captured: fx.GraphModule | None = None
    halves: tuple[fx.GraphModule, fx.GraphModule] | None = None
    switches: set[object] = field(default_factory=lambda: {WHOLE})
    _before_wrappers: list[Step] = field(default_factory=list)
    _before_functionalization: Callable[..., Any] | None = None

    def around(
        self, target: Target, function: Function, sample: Sequence[torch.Tensor]
    ) -> Callable[..., object]:
        """The function on a target. The first call compiles, and runs the target as it is."""

        def call(*inputs: torch.Tensor) -> object:
            if self.build is None:
                self.build = target.build(function, sample)
            if self.chosen is not None and self.chosen.layer == WHOLE:
                return self.chosen.function(list(inputs))
            return self.build.function(*inputs)

        return call

    @property
    def steps(self) -> list[Step]:
        """The program after each step, in order."""
        versions = self.watch.versions
        first = [version for version in versions if version.part in _BEFORE_AOT]
        if not first and self.captured is not None:  # no pass changed it
            first = [Version(*CAPTURE, self.captured)]
        steps = [_step(version, CAPTURED) for version in first]
        steps += self._before_wrappers
        if self.halves is not None:
            steps = [step for step in steps if step.layer in self.switches]
            return steps + self._training_steps(self.halves)
        traced = self._before_functionalization
        if traced is not None:
            steps.append(Step(RUNTIME_WRAPPER, GRAPH, _with_output_description(traced)))
        steps += [_in_wrapper(version) for version in versions if version.part not in _BEFORE_AOT]
        return [step for step in steps if step.layer in self.switches]

    def _training_steps(self, halves: Sequence[fx.GraphModule]) -> list[Step]:
        """The steps of a compilation for training. Their graphs run when compiled again."""
        forward, backward = (tuple(placeholders(half.graph)) for half in halves)
        replaced = {backward: BACKWARD, forward: FORWARD}
        graphs = [
            Step(
                _name(version),
                replaced.get(tuple(placeholders(version.graph.graph)), JOINT),
                _runs_when_compiled,
                version.graph,
            )
            for version in self.watch.versions
            if version.part not in _BEFORE_AOT
        ]
        joint = [step for step in graphs if step.layer == JOINT]
        # No earlier step uses this wrapper, so it cannot be distinguished from the first graph.
        joint[:1] = [step._replace(name=JOINT_GRAPH) for step in joint[:1]]
        split = Step("partitioner: split of the joint graph", SPLIT, _runs_when_compiled)
        return [*joint, split, *(step for step in graphs if step.layer != JOINT)]

    def _begin(self) -> None:
        """Begin to record a compilation, and forget an earlier one."""
        # Dynamo may compile again before the first call ends, and drop its first result.
        self.compilations += 1
        self.watch.forget()
        self.captured, self.halves, self._before_functionalization = None, None, None
        self._before_wrappers.clear()
        self.switches = {WHOLE}

    @property
    def single(self) -> bool:
        """Whether all calls used the recorded compilation."""
        return self.called <= {self.compilations}

    @property
    def complete(self) -> bool:
        """Whether a graph was compiled."""
        return GRAPH in self.switches or self.halves is not None

    # --- the layers of AOTAutograd ---

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Record compilations and insert their switches while this context is entered."""
        # Imported late: it takes a second, and attribution is rare.
        from torch._dynamo.backends import common  # noqa: PLC0415
        from torch._functorch._aot_autograd import (  # noqa: PLC0415
            graph_capture,
            graph_capture_wrappers,
            graph_compile,
        )

        with (
            mock.patch.multiple(
                graph_compile,
                pre_compile=self._pre_compile,
                post_compile=self._post_compile,
                _aot_stage2b_inference_compile=functools.partial(
                    self._compile_by_backend, graph_compile._aot_stage2b_inference_compile
                ),
                _partition_joint_graph_into_fw_bw=functools.partial(
                    self._note_halves, graph_compile._partition_joint_graph_into_fw_bw
                ),
            ),
            mock.patch.multiple(
                graph_capture,
                fn_input_mutations_to_outputs=functools.partial(
                    self._note_prepared, graph_capture_wrappers.fn_input_mutations_to_outputs
                ),
                _create_graph=functools.partial(
                    self._trace_undecomposed, graph_capture._create_graph
                ),
            ),
            mock.patch.object(
                common.AotAutograd, "__call__", self._backend(common.AotAutograd.__call__)
            ),
            self.watch.watching(),
        ):
            yield

    def _pre_compile(
        self,
        wrappers: Sequence[Any],
        function: Any,
        inputs: Any,
        descriptions: Any,
        config: Any,
        *,
        fw_metadata: Any,
    ) -> tuple[Any, Any, Any, Any]:
        """`pre_compile` of torch/_functorch/_aot_autograd/runtime_wrappers.py, with recording."""
        if self.captured is None:  # there was no backend of Dynamo
            self._begin()
        for wrapper in wrappers:
            before = function
            function, inputs, descriptions, fw_metadata = wrapper.pre_compile(
                function, inputs, descriptions, config, fw_metadata=fw_metadata
            )
            if function is not before:  # the wrapper is not a no-op
                name = f"AOTAutograd: {type(wrapper).__name__}"
                self._before_wrappers.append(
                    Step(name, id(wrapper), _with_output_description(function))
                )
        return function, inputs, descriptions, fw_metadata

    def _post_compile(
        self, wrappers: Sequence[Any], compiled: Any, config: Any, *, runtime_metadata: Any
    ) -> tuple[Any, Any]:
        """`post_compile` of the same file, with switches."""
        for wrapper in reversed(wrappers):
            inner = self._switch(id(wrapper), compiled)
            compiled = wrapper.post_compile(inner, config, runtime_metadata=runtime_metadata)
        return compiled, runtime_metadata

    def _compile_by_backend(
        self, compile_graph: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        return self._switch(GRAPH, compile_graph(*args, **kwargs))

    def _note_prepared(self, prepare: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._before_functionalization = prepare(*args, **kwargs)
        return self._before_functionalization

    def _backend(self, right: Callable[..., Any]) -> Callable[..., Any]:
        """A backend of Dynamo whose result takes the inputs of the captured graph."""

        def backend(own: Any, graph: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
            self._begin()
            self.captured = copied(graph.graph, graph)
            compiled = right(own, graph, *args, **kwargs)
            boxed = self._switch(CAPTURED, lambda inputs: compiled(*inputs))
            return lambda *inputs: boxed(list(inputs))

        return backend

    def _note_halves(self, split: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        forward, backward, *rest = split(*args, **kwargs)
        # Passes change these graphs later.
        self.halves = (copied(forward.graph, forward), copied(backward.graph, backward))
        return forward, backward, *rest

    def _trace_undecomposed(self, trace: Callable[..., Any], *args: Any, aot_config: Any) -> Any:
        table = aot_config.decompositions or {}
        kept = {op: rule for op, rule in table.items() if not self.undecomposed(op)}
        return trace(*args, aot_config=dataclasses.replace(aot_config, decompositions=kept))

    def _switch(self, layer: object, compiled: Callable[[list[Any]], Any]) -> Callable[..., Any]:
        """What a layer calls: the next layer, or the chosen step if that replaces it."""
        self.switches.add(layer)
        number = self.compilations

        def run(args: list[Any]) -> Any:
            self.called.add(number)
            if layer == GRAPH and self.graph_inputs is None:
                self.graph_inputs = clone_inputs(args)
            if self.chosen is None or self.chosen.layer != layer:
                return compiled(args)
            return self.chosen.function(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def stages_as_steps(build: Build | None) -> list[Step]:
    """The stages of a target that have the function's interface, as steps replacing all of it."""
    stages = [] if build is None else [stage for stage in build.stages if stage.whole]
    if len(stages) < 2:  # the only stage is the target itself
        return []
    return [_step(Version("stage", stage.name, stage.graph), WHOLE) for stage in stages]


def _with_output_description(function: Any) -> Callable[[list[Any]], Any]:
    """A function as AOTAutograd traces it, without its description of the outputs."""
    # Imported late: it is a part of the compiler, and attribution is rare.
    from torch._guards import TracingContext, tracing  # noqa: PLC0415

    def run(args: list[Any]) -> Any:
        # A function that was given as a graph looks up the fake mode of its tracing, but does not
        # use it for real tensors.
        with tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv()))):
            return function(*args)[0]

    return run


def _runs_when_compiled(_: list[Any]) -> Any:
    raise InternalError("a step of a compilation for training runs in a compilation of its own")


def _step(version: Version, layer: object) -> Step:
    # `forward`, since calling the module prints an error before raising it.
    return Step(_name(version), layer, lambda args: version.graph.forward(*args), version.graph)


def _in_wrapper(version: Version) -> Step:
    if version.part == "post_grad":
        inductor_reinplace.give_foreach_results(version.graph)
    return _step(version, GRAPH)


def _name(version: Version) -> str:
    if version.part == YOUR_PASS:
        return f"{YOUR_PASS} `{version.name}`"
    return f"{version.part}: {version.name}"
