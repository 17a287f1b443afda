"""`first_wrong_pass`: the pass of a compiler after which a program is wrong.

The target compiles the program once. Then every step of the compilation runs with the program's
inputs, instead of the compiled graph, and the same oracle judges it under the same contract. The
pass at fault is the first wrong step after the last right one. The first wrong step would not
suffice, since a later pass may repair what an earlier one breaks. For the same reason, bisection
would not suffice either.

If all graphs are right, the code that is generated from the last one is wrong. Then experiments
find the part of the code generator.
"""

from __future__ import annotations

import contextlib
import functools
import operator as operators
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.exc import SkipFrame
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._inductor import config
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import seed_generators
from aliasproof.ir.python_program import PythonProgram
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.compile_steps import (
    GRAPH,
    REPLAYED,
    Step,
    SteppedFunction,
    drivers,
    part_and_pass,
    replaying,
    stages_as_steps,
)
from aliasproof.judge.python_case import PythonCase, compare, compiler, run_python
from aliasproof.judge.trial import Case, EagerRun, run_eager, run_trial
from aliasproof.oracles import clobbers, equivalence, invariants
from aliasproof.oracles.equivalence import ValueHashes, run_uninterpreted
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import observe
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.stage_run import run_stage
from aliasproof.oracles.verdict import Violation, same_promise
from aliasproof.targets import second_calls
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target

# --- code generation ------------------------------------------------------------------------------
#
# The last graph is right, and the code that is generated from it is wrong. Each experiment compiles
# again with one part switched off, or with one operator as a call of ATen instead of generated
# code. The first experiment that removes the violation names the part. The experiments are ordered
# from the most special to the most general: without fusion, fewer buffers are reused, so buffer
# reuse must be tried before fusion; and any operator that runs as a call changes what is fused.
#
# Compare `torch/_inductor/compiler_bisector.py`, which disables lowerings by their number, but does
# not handle the scheduler.


GENERATES_CODE = ("inductor",)
WHOLE_GENERATOR = "code generation"
ONE_OPERATOR = "lowering of "


@dataclass(frozen=True, slots=True)
class Experiment:
    """A part of the code generator, and a context that disables it.

    `without` says what the context does, as the end of 'it is right ...'. `settings` are values for
    `torch._inductor.config`.
    """

    part: str
    without: str
    settings: Mapping[str, object]
    patch: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The context."""
        with config.patch(dict(self.settings)), self.patch():
            yield


def _without_fusion() -> contextlib.AbstractContextManager[object]:
    from torch._inductor.scheduler import Scheduler  # noqa: PLC0415

    return mock.patch.object(Scheduler, "fuse_nodes", lambda scheduler, nodes: nodes)


@contextlib.contextmanager
def _without_inlining() -> Iterator[None]:
    """Each operator fills a buffer when it is lowered; none is inlined where it is used."""
    from torch._inductor import ir  # noqa: PLC0415
    from torch._inductor.graph import GraphLowering  # noqa: PLC0415

    lowered = GraphLowering.run_node

    def run_node(lowering: Any, node: fx.Node) -> Any:
        result = lowered(lowering, node)
        if isinstance(result, ir.TensorBox) and node.op == "call_function":
            result.realize()
        return result

    with mock.patch.object(GraphLowering, "run_node", run_node):
        yield


@contextlib.contextmanager
def _recompute_metadata() -> Iterator[None]:
    """The metadata of all nodes is computed again after the passes."""
    from torch._inductor import compile_fx  # noqa: PLC0415
    from torch._inductor.virtualized import V  # noqa: PLC0415
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp  # noqa: PLC0415

    passes = compile_fx._recursive_post_grad_passes

    def run_passes(graph: fx.GraphModule, is_inference: bool = False) -> None:
        passes(graph, is_inference)
        inputs = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
        FakeTensorProp(graph, mode=V.fake_mode).propagate_dont_convert_inputs(*inputs)

    with mock.patch.object(compile_fx, "_recursive_post_grad_passes", run_passes):
        yield


def _setting(part: str, name: str, value: object) -> Experiment:
    return Experiment(part, f"with `{name}={value}` in `torch._inductor.config`", {name: value})


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "post_grad: metadata of the graph",
        "if the metadata of its graph is computed again after all passes",
        {},
        _recompute_metadata,
    ),
    _setting("scheduler: in-place buffers", "inplace_buffers", False),
    _setting("wrapper: memory planning", "memory_planning", False),
    _setting("wrapper: buffer reuse", "allow_buffer_reuse", False),
    _setting("scheduler: order for peak memory", "reorder_for_peak_memory", False),
    _setting("scheduler: dead-node elimination", "use_dce", False),
    Experiment(
        "lowering: computation at the place of use",
        "if each operator fills a buffer when it is lowered",
        {},
        _without_inlining,
    ),
    _setting("C++: vectorized code", "cpp.simdlen", 1),
    Experiment("scheduler: fusion", "if the scheduler fuses nothing", {}, _without_fusion),
)


def in_code_generator(part: str) -> bool:
    """Whether a part at fault belongs to the code generator, so that all graphs are right."""
    return part == WHOLE_GENERATOR or bool(without(part))


def without(part: str) -> str:
    """What makes the generated code right, as the end of 'it is right ...'; empty if unknown."""
    if part.startswith(ONE_OPERATOR):
        return f"if it calls `{part.removeprefix(ONE_OPERATOR)}` of ATen"
    return next((experiment.without for experiment in EXPERIMENTS if experiment.part == part), "")


def part_at_fault(case: Case, target: Target, violation: Violation, eager: EagerRun) -> str | None:
    """The part whose removal removes the violation, such as 'lowering of aten.add.Tensor'.

    'code generation' if no experiment removes it. None if the violation is flaky.
    """
    operators: dict[OpOverload, None] = {}

    def shows(context: contextlib.AbstractContextManager[object], tested: Target = target) -> bool:
        with context:
            trial = run_trial(case, tested, eager=eager)
        # After another error, nothing can be concluded.
        failed = trial.target.error is not None and violation.silent
        return failed or any(same_promise(other, violation) for other in trial.judgement.violations)

    if not shows(_lowering(operators)):
        return None
    for experiment in EXPERIMENTS:
        # `inductor:memory_planning=True` would set its option again after the experiment, so a
        # target without the setting is tested.
        parts = target.name.split(":")
        given = {part for part in parts if part.split("=")[0] in experiment.settings}
        fewer = (other for other in target.varies if not given & set(other.name.split(":")))
        if not shows(experiment.running(), next(fewer, target) if given else target):
            return experiment.part
    for operator in operators:
        if not shows(_lowering({}, operator)):
            return f"{ONE_OPERATOR}{operator}"
    return WHOLE_GENERATOR


@contextlib.contextmanager
def _lowering(
    operators: dict[OpOverload, None], as_call: OpOverload | None = None
) -> Iterator[None]:
    """Record the operators that are lowered. Generated code calls ATen for `as_call`."""
    from torch._inductor.graph import GraphLowering  # noqa: PLC0415
    from torch._inductor.lowering import fallback_handler  # noqa: PLC0415

    lowered = GraphLowering.call_function

    def call_function(lowering: Any, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, OpOverload):
            operators[target] = None
        if target is as_call and as_call is not None:
            return fallback_handler(as_call, add_to_fallback_set=False)(*args, **kwargs)
        return lowered(lowering, target, args, kwargs)

    with mock.patch.object(GraphLowering, "call_function", call_function):
        yield


# --- compile errors -------------------------------------------------------------------------------


_TORCH = Path(torch.__file__).parent

# By file in torch; the innermost matching frame decides. These parts have no list of passes.
_PARTS = (
    ("_functorch/_aot_autograd/collect_metadata_analysis.py", "AOTAutograd: metadata analysis"),
    ("_functorch/_aot_autograd/runtime_wrappers.py", "AOTAutograd: wrappers"),
    ("_functorch/_aot_autograd/input_output_analysis.py", "AOTAutograd: wrappers"),
    ("_functorch/_aot_autograd/graph_capture", "AOTAutograd: functionalization"),
    ("_inductor/memory.py", "scheduler: order for peak memory"),
    ("_inductor/scheduler.py", "scheduler"),
    ("_inductor/codegen/", "code generation"),
    ("_inductor/codecache.py", "C++ compiler"),
    ("_inductor/graph.py", "lowering"),
    ("_dynamo/symbolic_convert.py", "Dynamo"),
)


def where_raised(error: BaseException) -> str | None:
    """The pass or part that raised an error; None if it has no frame of a compiler."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][::-1]
    for index, frame in enumerate(frames):
        if id(frame.f_code) in drivers() and index > 0:
            return ": ".join(filter(None, part_and_pass(frames[index - 1 :])))
        inside, target = inside_torch(frame), frame.f_locals.get("target")
        # `GraphLowering.call_function` lowers an operator.
        lowers = frame.f_code.co_name == "call_function" and inside == "_inductor/graph.py"
        if lowers and isinstance(target, OpOverload):
            return f"lowering of {target}"
        if part := next((part for start, part in _PARTS if inside.startswith(start)), None):
            return part
    return None


def inside_torch(frame: FrameType) -> str:
    """The file of a frame, relative to torch; empty for other code."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(_TORCH).as_posix() if path.is_relative_to(_TORCH) else ""


# --- passes ---------------------------------------------------------------------------------------


# For a target that is right in one call, but does not recompile for a second one.
GUARDS = "Dynamo: guards"
FUNCTIONALIZATION = "AOTAutograd: functionalization"

_ON_STAGES = {
    clobbers.ORACLE.name: clobbers.judge,
    invariants.ORACLE.name: invariants.judge,
}


@dataclass(frozen=True, slots=True)
class PassAtFault:
    """The name of a pass, such as 'post_grad: remove_noop_ops', and the graphs around it.

    A graph is Python code, or empty if there is none, for example after a wrapper.
    """

    name: str
    before: str = ""
    after: str = ""


def first_wrong_pass(
    case: Case, target: Target, violation: Violation, *, experiments: bool = True
) -> PassAtFault | None:
    """The pass of a target that is at fault for a violation, or None if it is not found.

    `target` is the target at fault. None if it makes no graph, or several, or if the violation is
    flaky. If all graphs are right, `experiments` find the part of the code generator, with a dozen
    compilations or more; without them, the result is 'code generation'. Raises `Rejected` if the
    case is undefined in eager or the target does not take it.
    """
    case = case.under(target)
    eager = run_eager(case)
    # The layer before has the same graphs, so generate code only where an experiment needs it.
    base = target.name.split(":")[0]
    on_graphs = target.after if base in GENERATES_CODE and target.after else target
    wrong_pass = _StepSearch(case, on_graphs, violation, eager).pass_at_fault()
    if wrong_pass is not None or on_graphs is target:
        return wrong_pass
    # If a function consists of several graphs, they are not judged one by one.
    with contextlib.suppress(Rejected):
        before = run_trial(case, on_graphs, eager=eager).judgement.violations
        if any(same_promise(other, violation) for other in before):
            return None
    if not experiments:
        return PassAtFault(WHOLE_GENERATOR)
    part = part_at_fault(case, target, violation, eager)
    return None if part is None else PassAtFault(part)


@dataclass(frozen=True, slots=True)
class _StepSearch:
    """The search for the first wrong step of a compilation."""

    case: Case
    target: Target
    violation: Violation
    eager: EagerRun

    def pass_at_fault(self) -> PassAtFault | None:
        compiled = SteppedFunction()
        # Such a compiler uses AOTAutograd in other ways: the graphs made there are not what runs.
        outside = self.target.needs is not None
        function, error = self._compile(compiled, watched=not outside)
        if outside and error is None:
            return self._first_wrong(compiled, function, stages_as_steps(compiled.build))
        if error is not None and not compiled.complete:
            part = where_raised(error)
            return None if part is None else PassAtFault(part)
        if not compiled.single:  # several graphs
            return None
        if (
            second_calls.SECOND_CALLS.keys() & set(self.target.name.split(":"))
            and compiled.complete
        ):
            return PassAtFault(GUARDS)
        steps = compiled.steps or stages_as_steps(compiled.build)
        wrong_pass = self._first_wrong(compiled, function, steps)
        if wrong_pass is not None and wrong_pass.name == FUNCTIONALIZATION:
            operator = self._decomposition()
            if operator is not None:
                return replace(wrong_pass, name=f"AOTAutograd: decomposition of {operator}")
        return wrong_pass

    def _compile(
        self, compiled: SteppedFunction, *, watched: bool = True
    ) -> tuple[Callable[..., object], BaseException | None]:
        FakeTensorMode.cache_clear()  # as for each trial
        sample = self.case.fresh_inputs()
        with compiled.compiling() if watched else contextlib.nullcontext():
            function = compiled.around(self.target, self.case.function, sample)
            seed_generators()
            return function, observe(function, self.case.fresh_inputs()).error

    def _first_wrong(
        self, compiled: SteppedFunction, function: Callable[..., object], steps: Sequence[Step]
    ) -> PassAtFault | None:
        at_fault, last_right = None, None
        for step in steps:
            wrong = self._wrong(step, compiled, function)
            if wrong is False:
                at_fault, last_right = None, step
            elif wrong and at_fault is None:
                at_fault = step
        if at_fault is None:
            return None
        around = (last_right, at_fault)
        before, after = (step.graph.code if step and step.graph else "" for step in around)
        return PassAtFault(at_fault.name, before, after)

    def _decomposition(self) -> OpOverload | None:
        """The operator whose decomposition is wrong, if the trace is right without any."""
        graph = self._traced_right(lambda operator: True)
        if graph is None:
            return None
        called = dict.fromkeys(node.target for node in graph.graph.nodes)
        for operator in called:
            same = functools.partial(operators.is_, operator)
            if isinstance(operator, OpOverload) and self._traced_right(same):
                return operator
        return None

    def _traced_right(self, undecomposed: Callable[[object], bool]) -> fx.GraphModule | None:
        """The traced graph without decompositions of these operators, if it is right."""
        compiled = SteppedFunction(undecomposed=undecomposed)
        function, _ = self._compile(compiled)
        step = next(
            (candidate for candidate in compiled.steps if candidate.name == FUNCTIONALIZATION), None
        )
        if step is None or self._wrong(step, compiled, function) is not False:
            return None
        return step.graph

    # --- one step ---

    def _wrong(
        self, step: Step, compiled: SteppedFunction, function: Callable[..., object]
    ) -> bool | None:
        """Whether a step shows the violation; None if this step cannot be judged."""
        compiled.chosen = step
        try:
            violations = self._violations(step, compiled, function)
        except (Rejected, InternalError):  # an oracle cannot judge this graph
            return None
        finally:
            compiled.chosen = None
        for other in violations:
            # Differences at other locations may be the fault of a layer before the user's code.
            here = not self.target.yours or other.place == self.violation.place
            if here and same_promise(other, self.violation):
                return True
        # In the middle of a compilation, a graph may have operators that only a compiler can run.
        failed = any(not other.silent for other in violations)
        return None if failed else False

    def _violations(
        self, step: Step, compiled: SteppedFunction, function: Callable[..., object]
    ) -> Sequence[Violation]:
        oracle = self.violation.oracle
        if oracle in _ON_STAGES:
            return self._on_stage(step, compiled)
        contract, (expected, trace) = self.target.contract, self.eager
        seed_generators()
        if oracle == equivalence.ORACLE.name:

            def hashes(seed: int) -> tuple[ValueHashes, ValueHashes]:
                ours = run_uninterpreted(self.case.function, self.case.fresh_inputs(), seed=seed)
                seed_generators()
                return ours, run_uninterpreted(function, self.case.fresh_inputs(), seed=seed)

            return equivalence.judge(contract, *hashes(0), trace, lambda: hashes(1)).violations
        if step.layer in REPLAYED:

            def compiled_again(*inputs: torch.Tensor) -> object:
                build = self.target.build(self.case.function, self.case.fresh_inputs())
                seed_generators()
                return build.function(*inputs)

            with replaying({} if step.graph is None else {str(step.layer): step.graph}):
                actual = observe(compiled_again, self.case.fresh_inputs())
        else:
            actual = observe(function, self.case.fresh_inputs())
        return judge(contract, expected, actual, trace).violations

    def _on_stage(self, step: Step, compiled: SteppedFunction) -> Sequence[Violation]:
        build, inputs = compiled.build, compiled.graph_inputs
        if step.graph is None or step.layer != GRAPH or inputs is None:
            return []
        assert build is not None
        stage = Stage(step.name, step.graph, build.stages[-1].functional, whole=False)
        runs = [run_stage(stage, clone_inputs(inputs))]
        # A clobber is judged against the functional graph that the passes started from.
        first = next(it.graph for it in compiled.steps if it.graph and it.layer == GRAPH)
        oracle = self.violation.oracle
        if oracle == clobbers.ORACLE.name and first is not step.graph:
            before = Stage("functional graph", first, functional=True, whole=False)
            runs.insert(0, run_stage(before, clone_inputs(inputs)))
        return _ON_STAGES[oracle](self.target.contract, runs, self.eager.trace).violations


# --- parts of Python code -------------------------------------------------------------------------
#
# Each experiment compiles the program again without one part of the compiler, or compiles only one
# graph. The first experiment that removes the difference names the part. The error of a compilation
# shows where it was raised.


Transform = Callable[[Any], Any]
LAYER_NAMES = {
    "dynamo": "Dynamo",
    "aot-eager": "AOTAutograd",
    "inductor": "Inductor",
    "reference": "backend aliasproof",
}


def part_of(program: PythonProgram, symptom: Symptom) -> str:
    """The part at fault: 'Dynamo: guards', 'AOTAutograd: min-cut partitioner, graph 2 of 3'.

    Only the layer if no experiment finds the part, and empty if the difference does not show.
    Raises `Undefined` if the program is undefined in eager.
    """
    return _PartSearch(program, symptom, run_eager(PythonCase(program))).part()


@dataclass(frozen=True, slots=True)
class _PartSearch:
    program: PythonProgram
    symptom: Symptom
    eager: EagerRun

    def shows(self, transform: Transform) -> bool:
        """Whether the difference shows."""
        FakeTensorMode.cache_clear()
        contract = target_named(self.symptom.target).contract
        found = compare(self.program, transform, self.eager, contract)
        # After another error, nothing can be concluded.
        return any(one.oracle in (self.symptom.oracle, "errors") for one in found)

    def part(self) -> str:
        target = self.symptom.target
        layer, compiled = LAYER_NAMES.get(target, target), compiler(target_named(target))
        if not self.shows(compiled):
            return ""
        raised = self._raised_in(compiled)
        if raised is not None:
            return raised
        if not self.shows(_transform(compiled, _compiled_again)):
            return GUARDS
        for part, transform in self._experiments():
            if not self.shows(transform):
                layer = part
                break
        return layer + self._graph()

    def _raised_in(self, compiled: Transform) -> str | None:
        """Where the compilation raised; None if it did not, or the location is unknown."""
        if self.symptom.oracle != "errors":
            return None
        error: BaseException | None = run_python(self.program, compiled).error
        while error is not None and error.__cause__ is not None:
            error = error.__cause__
        raised = None if error is None else where_raised(error)
        if raised == LAYER_NAMES["dynamo"] and error is not None:
            # The innermost kind of variable.
            files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
            kinds = [file.stem for file in files if file.parent.name == "variables"]
            return ": ".join([raised, *kinds[-1:]])
        return raised

    def _experiments(self) -> Iterator[tuple[str, Transform]]:
        """The parts that can be left out, each with a compiler without that part."""
        if self.symptom.target == "aot-eager":
            min_cut = min_cut_rematerialization_partition
            yield "AOTAutograd: min-cut partitioner", _by(_aot(default_partition, keep=True))
            yield "AOTAutograd: mutations in the graph", _by(_aot(min_cut, keep=False))
        if self.symptom.target == "inductor":
            passes = (Experiment(name, "", {"disabled_passes": name}) for name in self._passes())
            for experiment in (*passes, *EXPERIMENTS):
                yield (
                    f"Inductor: {experiment.part}",
                    _transform(_by("inductor"), experiment.running),
                )

    def _passes(self) -> Sequence[str]:
        """The names of the graph passes that run, in order."""
        # Imported late: it takes two seconds, and most causes are in other layers.
        from torch.fx.passes.graph_transform_observer import (  # noqa: PLC0415
            GraphTransformObserver,
        )

        names: dict[str, None] = {}
        right = GraphTransformObserver._check_disable_pass

        def noting(observer: Any) -> bool:
            names[observer.passname] = None
            return right(observer)

        with mock.patch.object(GraphTransformObserver, "_check_disable_pass", noting):
            self.shows(_by("inductor"))
        return list(names)

    def _graph(self) -> str:
        """Which graph is at fault, in words, if there are several."""
        target = self.symptom.target
        counting = _Chosen(target, range(0))
        self.shows(_by(counting))
        graphs = counting.graphs
        if graphs < 2:
            return ""
        for number in range(graphs):
            # The code that Dynamo makes of a frame needs that of earlier frames.
            chosen = range(number + 1) if target == "dynamo" else range(number, number + 1)
            if self.shows(_by(_Chosen(target, chosen, skip=target == "dynamo"))):
                return f", graph {number + 1} of {graphs}"
        return ", several graphs"


@dataclass(slots=True)
class _Chosen:
    """A backend that compiles only some of its graphs.

    The others run as Dynamo made them; with `skip`, their frames run as Python instead.
    """

    target: str
    chosen: range
    skip: bool = False
    graphs: int = 0

    def __call__(self, graph: fx.GraphModule, inputs: list[torch.Tensor], **_: Any) -> Any:
        self.graphs += 1
        if self.graphs - 1 in self.chosen:
            backend = target_named(self.target).backend
            compiler = lookup_backend(backend) if isinstance(backend, str) else backend
            return compiler(graph, inputs)
        if self.skip:
            raise SkipFrame("not chosen")
        return graph.forward


def _transform(
    compiled: Transform,
    within: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> Transform:
    """A transform whose result is called in a context."""

    def transform(program: Any) -> Any:
        function = compiled(program)

        @functools.wraps(program)
        def call(*args: Any, **kwargs: Any) -> Any:
            with within():
                return function(*args, **kwargs)

        return call

    return transform


@contextlib.contextmanager
def _compiled_again() -> Iterator[None]:
    """A call in this context compiles again, so that no guard is evaluated."""
    torch._dynamo.reset()
    yield


def _by(backend: Any) -> Transform:
    """The transform that compiles with a backend."""
    return functools.partial(torch.compile, backend=backend)


def _aot(partition: Any, *, keep: bool) -> Any:
    """The backend *aot_eager* with a partitioner, and with or without input writes in the graph."""
    return aot_autograd(
        fw_compiler=boxed_nop, partition_fn=partition, keep_inference_input_mutations=keep
    )
