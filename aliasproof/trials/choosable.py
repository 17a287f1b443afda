"""`Choosable`: a compiled function that can run as it was after any step of its compilation.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aliasproof.ir.errors import InternalError
from aliasproof.ir.values import clone_inputs
from aliasproof.targets import inductor_reinplace
from aliasproof.targets.graph_snapshots import copied
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.user_builds import YOUR_PASS
from aliasproof.trials.graph_versions import CAPTURE, PassWatch, Version, placeholders
from aliasproof.trials.training_steps import JOINT, SPLIT, replaced_by

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
class Choosable:
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
        versions = self.watch.versions
        names = [placeholders(half.graph) for half in halves]
        layers = list(replaced_by(versions, names))
        graphs = [
            Step(_name(version), layer, _runs_when_compiled, version.graph)
            for version, layer in zip(versions, layers, strict=True)
            if layer is not None
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
        def compiled(*args: Any, **kwargs: Any) -> Any:
            return self._switch(GRAPH, compile_graph(*args, **kwargs))

        return compiled

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
    return Step(_name(version), layer, _runner_of(version.graph), version.graph)


def _in_wrapper(version: Version) -> Step:
    if version.part == "post_grad":
        inductor_reinplace.give_foreach_results(version.graph)
    return _step(version, GRAPH)


def _runner_of(graph: fx.GraphModule) -> Callable[[list[Any]], Any]:
    # Not the module itself: it prints an error before it raises it.
    return lambda args: graph.forward(*args)


def _name(version: Version) -> str:
    if version.part == YOUR_PASS:
        return f"{YOUR_PASS} `{version.name}`"
    return f"{version.part}: {version.name}"
