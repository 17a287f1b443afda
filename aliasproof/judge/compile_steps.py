"""`SteppedFunction`: a compiled function that can run as it was after any step of its compilation.

AOTAutograd wraps what it compiles, from the outside to the inside: wrappers for duplicate inputs
and for inputs on one storage, the runtime wrapper, the compiled graph. While a function compiles
here, a switch is put between these layers. It calls either the next layer, or what the program was
at this point: the function that the wrapper was given, the function before functionalization, or
the graph after any pass. All around stays the same, so what differs then is the fault of a step up
to this one. The function compiles once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeAlias
from unittest import mock

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aliasproof.ir.errors import InternalError
from aliasproof.ir.values import clone_inputs
from aliasproof.targets import inductor_reinplace
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import copied
from aliasproof.targets.user_targets import YOUR_PASS, UserPass

# --- graph versions -------------------------------------------------------------------------------
#
# `PassWatch`: the graph of one compilation after each pass that changed it.
#
# A compiler calls its passes from a few functions, here *drivers*: `post_grad_passes` of Inductor,
# `aot_dispatch_base_graph` of AOTAutograd. Every function that a driver calls counts as a pass. So
# no list of passes must be kept, and what runs outside of a `GraphTransformObserver` is seen too,
# such as `view_to_reshape` or `eliminate_dead_code`. When such a function returns and the graph of
# the driver has changed, a copy of the graph is kept under the name of the function.
#
# Python reports returns through `sys.setprofile`: no function of torch is replaced for this.


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
# Functions that make a graph, and ours around a compiler: their names would say little.
_MAKERS = {
    "_create_graph_and_save_traced_inputs": "functionalization",
    "around_compiler": "the compiler of the backend",
}
# Methods of an observer, which run the pass that the observer names.
_OBSERVED = ("apply_graph_pass", "apply_gm_pass")
# What targets do so that a graph runs in eager, which every version needs
# (`aliasproof.judge.compile_steps`).
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
        complete = event == "return" or not self.versions
        if complete and text != self._last.get(names) and frame.f_code.co_name not in _OF_TARGETS:
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
        # `run_python` clears the locals of the frames of an error.
        if frame.f_code.co_name in _OBSERVED and frame.f_locals:
            name = _observed_name(frame)
        if frame.f_code is UserPass.__call__.__code__:
            name = frame.f_locals["self"].__name__
        driver = drivers().get(frame.f_code)
        if driver is None:
            continue
        if driver.part != _PATTERNS:
            return driver.part, name + pattern
        pattern = _pattern_name(frame)
        name = getattr(frame.f_locals.get("self"), "pass_name", None) or _PATTERNS
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
    """The name that an observer has for its pass; a custom pass has that of its function."""
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


# --- training steps -------------------------------------------------------------------------------
#
# Steps of a compilation for training: a joint graph, which is split into two.
#
# A wrapper around a compiled training function knows how many values the forward graph saves for
# the backward graph. So an earlier graph cannot run in the place of a compiled one, as in
# inference. The function is compiled again instead, with the earlier graph in the place of the one
# that torch made. Later passes do not run: a joint graph is split by the plain partitioner, and
# the two graphs run in eager.


# What a step replaces.
JOINT, SPLIT, FORWARD, BACKWARD = "joint", "split", "forward", "backward"
REPLAYED = (JOINT, SPLIT, FORWARD, BACKWARD)


@contextlib.contextmanager
def replaying(graphs: Mapping[str, fx.GraphModule]) -> Iterator[None]:
    """Compilations take these graphs, and run eagerly what follows from them."""
    # Imported here: it takes a second, and attribution is rare.
    from torch._functorch._aot_autograd import graph_compile  # noqa: PLC0415
    from torch._functorch.partitioners import default_partition  # noqa: PLC0415

    right = graph_compile.aot_stage2_autograd

    def stage(state: Any, capture: Any, partition: Callable[..., Any], *_: Any) -> Any:
        def split(graph: fx.GraphModule, inputs: Any, **options: Any) -> Any:
            if JOINT not in graphs:
                return partition(graph, inputs, **options)
            # Partitioners change the graph that they get.
            joint = copied(graphs[JOINT].graph, graphs[JOINT])
            joint.graph.eliminate_dead_code()  # they take no asserts, and a first graph has some
            return default_partition(joint, inputs, **options)

        return right(
            state, capture, split, _eager(graphs.get(FORWARD)), _eager(graphs.get(BACKWARD))
        )

    with mock.patch.object(graph_compile, "aot_stage2_autograd", stage):
        yield


def _eager(given: fx.GraphModule | None) -> Callable[..., Any]:
    """A compiler that runs a graph as it is, or the given one in its place."""

    def compiled(graph: fx.GraphModule, _: object) -> Callable[[list[Any]], Any]:
        module = graph if given is None else given

        def run(args: list[Any]) -> Any:
            return module.forward(*args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    return compiled


# --- choosable ------------------------------------------------------------------------------------


# Layers at which a choice can be made, beside the wrappers: the function, the graph that Dynamo
# captures (or that a target makes in place of Dynamo), and the graph of AOTAutograd.
WHOLE, CAPTURED, GRAPH = "whole", "captured", "graph"
# Parts whose graphs have the interface of the captured graph.
_BEFORE_AOT = ("Dynamo", "pre_grad")
RUNTIME_WRAPPER = "AOTAutograd: RuntimeWrapper"
JOINT_GRAPH = "AOTAutograd: joint graph and its wrapper"


class Step(NamedTuple):
    """What the program was after a step of its compilation.

    `layer` is the layer in place of which it runs. `graph` is None for a Python function.
    """

    name: str
    layer: object
    function: Callable[[list[Any]], Any]
    graph: fx.GraphModule | None = None


@dataclass(slots=True)
class SteppedFunction:
    """A compiled function whose steps can be chosen; `chosen` is None for what the target runs.

    Operators for which `undecomposed` is true are not decomposed. `switches` are the layers that
    exist. `compilations` are counted, and the last one is recorded; `called` has the numbers of
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
        """The function through a target. The first call compiles, and runs the target as it is."""

        def call(*inputs: torch.Tensor) -> object:
            if self.build is None:
                self.build = target.build(function, sample)
            if self.chosen is not None and self.chosen.layer == WHOLE:
                return self.chosen.function(list(inputs))
            return self.build.function(*inputs)

        return call

    @property
    def steps(self) -> list[Step]:
        """What the program was after each step, in their order."""
        versions = self.watch.versions
        first = [version for version in versions if version.part in _BEFORE_AOT]
        if not first and self.captured is not None:  # nothing was done with it
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
        """The steps of a compilation for training. The graphs run when they are compiled again."""
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
        # No earlier step has this wrapper, so nothing tells it from the first graph.
        joint[:1] = [step._replace(name=JOINT_GRAPH) for step in joint[:1]]
        split = Step("partitioner: split of the joint graph", SPLIT, _runs_when_compiled)
        return [*joint, split, *(step for step in graphs if step.layer != JOINT)]

    def _begin(self) -> None:
        """Begin to record a compilation, and forget an earlier one."""
        # Dynamo may compile again before the first call ends, and drop what it had.
        self.compilations += 1
        self.watch.forget()
        self.captured, self.halves, self._before_functionalization = None, None, None
        self._before_wrappers.clear()
        self.switches = {WHOLE}

    @property
    def single(self) -> bool:
        """Whether all calls were of the recorded compilation."""
        return self.called <= {self.compilations}

    @property
    def complete(self) -> bool:
        """Whether a graph was compiled."""
        return GRAPH in self.switches or self.halves is not None

    # --- the layers of AOTAutograd ---

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """While this context is entered, compilations are recorded and get their switches."""
        # Imported here: it takes a second, and attribution is rare.
        from torch._dynamo.backends import common  # noqa: PLC0415
        from torch._functorch._aot_autograd import (  # noqa: PLC0415
            graph_capture,
            graph_capture_wrappers,
            graph_compile,
        )

        with (
            mock.patch.object(graph_compile, "pre_compile", self._pre_compile),
            mock.patch.object(graph_compile, "post_compile", self._post_compile),
            mock.patch.object(
                graph_compile,
                "_aot_stage2b_inference_compile",
                self._compiling(graph_compile._aot_stage2b_inference_compile),
            ),
            mock.patch.object(
                graph_capture,
                "fn_input_mutations_to_outputs",
                self._noting(graph_capture_wrappers.fn_input_mutations_to_outputs),
            ),
            mock.patch.object(
                graph_capture, "_create_graph", self._tracing(graph_capture._create_graph)
            ),
            mock.patch.object(
                graph_compile,
                "_partition_joint_graph_into_fw_bw",
                self._splitting(graph_compile._partition_joint_graph_into_fw_bw),
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
        """`pre_compile` of torch/_functorch/_aot_autograd/runtime_wrappers.py, with notes."""
        if self.captured is None:  # no backend of Dynamo began
            self._begin()
        for wrapper in wrappers:
            before = function
            function, inputs, descriptions, fw_metadata = wrapper.pre_compile(
                function, inputs, descriptions, config, fw_metadata=fw_metadata
            )
            if function is not before:  # this wrapper has something to do
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

    def _compiling(self, compile_graph: Callable[..., Any]) -> Callable[..., Any]:
        def around_compiler(*args: Any, **kwargs: Any) -> Any:
            return self._switch(GRAPH, compile_graph(*args, **kwargs))

        return around_compiler

    def _noting(self, prepare: Callable[..., Any]) -> Callable[..., Any]:
        def prepared(*args: Any, **kwargs: Any) -> Any:
            self._before_functionalization = prepare(*args, **kwargs)
            return self._before_functionalization

        return prepared

    def _backend(self, right: Callable[..., Any]) -> Callable[..., Any]:
        """A backend of Dynamo; what it returns takes the inputs of the captured graph."""

        def backend(own: Any, graph: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
            self._begin()
            self.captured = copied(graph.graph, graph)
            compiled = right(own, graph, *args, **kwargs)
            boxed = self._switch(CAPTURED, lambda inputs: compiled(*inputs))
            return lambda *inputs: boxed(list(inputs))

        return backend

    def _splitting(self, split: Callable[..., Any]) -> Callable[..., Any]:
        def halves(*args: Any, **kwargs: Any) -> Any:
            forward, backward, *rest = split(*args, **kwargs)
            # Passes change these graphs later.
            self.halves = (copied(forward.graph, forward), copied(backward.graph, backward))
            return forward, backward, *rest

        return halves

    def _tracing(self, trace: Callable[..., Any]) -> Callable[..., Any]:
        def traced(*args: Any, aot_config: Any) -> Any:
            table = aot_config.decompositions or {}
            kept = {op: rule for op, rule in table.items() if not self.undecomposed(op)}
            return trace(*args, aot_config=dataclasses.replace(aot_config, decompositions=kept))

        return traced

    def _switch(self, layer: object, compiled: Callable[[list[Any]], Any]) -> Callable[..., Any]:
        """What a layer calls: the next one, or the chosen step if it runs in its place."""
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
    """The stages of a target that have the interface of the function, in the place of the whole."""
    stages = [] if build is None else [stage for stage in build.stages if stage.whole]
    if len(stages) < 2:  # the target says it all
        return []
    return [_step(Version("stage", stage.name, stage.graph), WHOLE) for stage in stages]


def _with_output_description(function: Any) -> Callable[[list[Any]], Any]:
    """A function as AOTAutograd traces it: it also describes its outputs, which is dropped here."""
    # Imported here: it is a part of the compiler, and attribution is rare.
    from torch._guards import TracingContext, tracing  # noqa: PLC0415

    def run(args: list[Any]) -> Any:
        # A function that came as a graph asks for the fake mode of its tracing, and does not use it
        # for real tensors.
        with tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv()))):
            return function(*args)[0]

    return run


def _runs_when_compiled(_: list[Any]) -> Any:
    raise InternalError("a step of a compilation for training runs in a compilation of its own")


def _step(version: Version, layer: object) -> Step:
    # Not by the module itself: it prints an error before it raises it.
    return Step(_name(version), layer, lambda args: version.graph.forward(*args), version.graph)


def _in_wrapper(version: Version) -> Step:
    if version.part == "post_grad":
        inductor_reinplace.give_foreach_results(version.graph)
    return _step(version, GRAPH)


def _name(version: Version) -> str:
    if version.part == YOUR_PASS:
        return f"{YOUR_PASS} `{version.name}`"
    return f"{version.part}: {version.name}"
