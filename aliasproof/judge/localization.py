"""`first_wrong_pass`: the pass of a compiler after which a program is wrong.

The target compiles the program once. Then every step of the compilation runs with the program's
inputs, in the place where the compiled graph would run, and the same oracle judges it under the
same contract. The pass at fault is the first wrong step after the last right one. The first wrong
step alone would not do, since a later pass may repair what an earlier one breaks. Bisection would
not do either, for the same reason.

If all graphs are right, the code that is generated from the last one is wrong. Then experiments
tell the part of the code generator (`aliasproof.judge.localization`).
"""

from __future__ import annotations

import contextlib
import functools
import operator as operators
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import seed_generators
from aliasproof.ir.values import clone_inputs
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
from aliasproof.judge.trial import Case, EagerRun, run_eager, run_trial
from aliasproof.oracles import clobbers, equivalence, invariants
from aliasproof.oracles.equivalence import ValueHashes, run_uninterpreted
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import observe
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.stage_run import run_stage
from aliasproof.oracles.verdict import Violation, same_promise
from aliasproof.targets import second_calls
from aliasproof.targets.target import Target

# --- code generation ------------------------------------------------------------------------------
#
# `part_at_fault`: the part of Inductor's code generator that is at fault.
#
# The last graph is right, and the code that is generated from it is wrong. Each experiment
# compiles again with one part switched off, or with one operator as a call of ATen instead of
# generated code. The first experiment after which the violation is gone names the part. They run
# from the most special to the most general: without fusion, fewer buffers are reused, so that
# buffer reuse must be asked before fusion; and any operator that runs as a call changes what is
# fused.
#
# Compare `torch/_inductor/compiler_bisector.py`, which disables lowerings by their number, and
# knows no scheduler.


GENERATES_CODE = ("inductor",)
WHOLE_GENERATOR = "code generation"
ONE_OPERATOR = "lowering of "


@dataclass(frozen=True, slots=True)
class Experiment:
    """A part of the code generator, and a context in which it does nothing.

    `without` says what the context does, in words after 'it is right'. `settings` are those of
    `torch._inductor.config`.
    """

    part: str
    without: str
    settings: Mapping[str, object]
    patch: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The context."""
        # Imported here: this takes two seconds, and most targets generate no code.
        from torch._inductor import config  # noqa: PLC0415

        with config.patch(dict(self.settings)), self.patch():
            yield


def _without_fusion() -> contextlib.AbstractContextManager[object]:
    from torch._inductor.scheduler import Scheduler  # noqa: PLC0415

    return mock.patch.object(Scheduler, "fuse_nodes", lambda scheduler, nodes: nodes)


@contextlib.contextmanager
def _at_once() -> Iterator[None]:
    """Each operator fills a buffer when it is lowered; none is computed where it is used."""
    from torch._inductor import graph, ir  # noqa: PLC0415

    lowered = graph.GraphLowering.run_node

    def run_node(lowering: Any, node: fx.Node) -> Any:
        result = lowered(lowering, node)
        if isinstance(result, ir.TensorBox) and node.op == "call_function":
            result.realize()
        return result

    with mock.patch.object(graph.GraphLowering, "run_node", run_node):
        yield


@contextlib.contextmanager
def _noted_anew() -> Iterator[None]:
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
        _noted_anew,
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
        _at_once,
    ),
    _setting("C++: vectorized code", "cpp.simdlen", 1),
    Experiment("scheduler: fusion", "if the scheduler fuses nothing", {}, _without_fusion),
)


def in_code_generator(part: str) -> bool:
    """Whether a part at fault is one of the code generator, so that all graphs are right."""
    return part == WHOLE_GENERATOR or bool(without(part))


def without(part: str) -> str:
    """What makes the generated code right, in words after 'it is right'; empty if nothing does."""
    if part.startswith(ONE_OPERATOR):
        return f"if it calls `{part.removeprefix(ONE_OPERATOR)}` of ATen"
    return next((experiment.without for experiment in EXPERIMENTS if experiment.part == part), "")


def part_at_fault(case: Case, target: Target, violation: Violation, eager: EagerRun) -> str | None:
    """The part after whose removal the violation is gone: 'lowering of aten.add.Tensor'.

    'code generation' if no experiment tells. None if the violation depends on chance.
    """
    operators: dict[OpOverload, None] = {}

    def shows(context: contextlib.AbstractContextManager[object], tested: Target = target) -> bool:
        with context:
            trial = run_trial(case, tested, eager=eager)
        # After another error, nothing is known.
        failed = trial.target.error is not None and violation.silent
        return failed or any(same_promise(other, violation) for other in trial.judgement.violations)

    if not shows(_lowered_operators(operators)):
        return None
    for experiment in EXPERIMENTS:
        if not shows(experiment.running(), _without_setting(target, experiment)):
            return experiment.part
    for operator in operators:
        if not shows(_as_call(operator)):
            return f"{ONE_OPERATOR}{operator}"
    return WHOLE_GENERATOR


def _without_setting(target: Target, experiment: Experiment) -> Target:
    """The target without the setting of an experiment, if its name gives one."""
    # `inductor:memory_planning=True` sets what it names after the experiment did.
    given = [part for part in target.name.split(":") if part.split("=")[0] in experiment.settings]
    fewer = [other for other in target.varies if not set(given) & set(other.name.split(":"))]
    return fewer[0] if given and fewer else target


@contextlib.contextmanager
def _lowered_operators(operators: dict[OpOverload, None]) -> Iterator[None]:
    """Note the operators that are lowered."""
    from torch._inductor.graph import GraphLowering  # noqa: PLC0415

    lowered = GraphLowering.call_function

    def call_function(lowering: Any, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, OpOverload):
            operators[target] = None
        return lowered(lowering, target, args, kwargs)

    with mock.patch.object(GraphLowering, "call_function", call_function):
        yield


@contextlib.contextmanager
def _as_call(operator: OpOverload) -> Iterator[None]:
    """Generated code calls ATen for this operator."""
    from torch._inductor.graph import GraphLowering  # noqa: PLC0415
    from torch._inductor.lowering import fallback_handler  # noqa: PLC0415

    lowered = GraphLowering.call_function

    def call_function(lowering: Any, target: Any, args: Any, kwargs: Any) -> Any:
        if target is operator:
            return fallback_handler(target, add_to_fallback_set=False)(*args, **kwargs)
        return lowered(lowering, target, args, kwargs)

    with mock.patch.object(GraphLowering, "call_function", call_function):
        yield


# --- compile errors -------------------------------------------------------------------------------
#
# `where_raised`: the pass, or the part of a compiler, in which a compilation raised.


_TORCH = Path(torch.__file__).parent

# By file in torch, the innermost frame that fits decides. Each is a part with no list of passes.
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
    """The pass or part that raised an error; None if no frame of a compiler tells."""
    frames = _innermost_first(error)
    for index, frame in enumerate(frames):
        if frame.f_code in drivers() and index > 0:
            return ": ".join(part_and_pass(frames[index - 1 :]))
        operator = _lowered_operator(frame)
        if operator is not None:
            return f"lowering of {operator}"
        part = _part(frame)
        if part is not None:
            return part
    return None


def _innermost_first(error: BaseException) -> list[FrameType]:
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames[::-1]


def _lowered_operator(frame: FrameType) -> OpOverload | None:
    """The operator that a frame of `GraphLowering.call_function` lowers."""
    if frame.f_code.co_name != "call_function" or _inside(frame) != "_inductor/graph.py":
        return None
    target = frame.f_locals.get("target")
    return target if isinstance(target, OpOverload) else None


def _part(frame: FrameType) -> str | None:
    inside = _inside(frame)
    return next((part for start, part in _PARTS if inside.startswith(start)), None)


def _inside(frame: FrameType) -> str:
    """The file of a frame, relative to torch; empty for other code."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(_TORCH).as_posix() if path.is_relative_to(_TORCH) else ""


# --- passes ---------------------------------------------------------------------------------------


# With one call, the target is right; with a second one, it does not compile again.
GUARDS = "Dynamo: guards"
FUNCTIONALIZATION = "AOTAutograd: functionalization"

_ON_STAGES = {
    clobbers.ORACLE.name: clobbers.judge,
    invariants.ORACLE.name: invariants.judge,
}


@dataclass(frozen=True, slots=True)
class PassAtFault:
    """The name of a pass, such as 'post_grad: remove_noop_ops', and the graphs around it.

    A graph is Python code; it is empty where there is none, such as after a wrapper.
    """

    name: str
    before: str = ""
    after: str = ""


def first_wrong_pass(
    case: Case, target: Target, violation: Violation, *, experiments: bool = True
) -> PassAtFault | None:
    """The pass of a target that is at fault for a violation, or None if nothing tells.

    `target` is the target at fault. None if it makes no graph, makes several, or if the violation
    depends on chance. If all graphs are right, `experiments` tell the part of the code generator,
    with a dozen compilations or more; without them, the answer is 'code generation'. Raises
    `Rejected` if the case is undefined in eager or not for the target.
    """
    case = case.under(target)
    eager = run_eager(case)
    # Graphs come from the layer before, so code is generated only where an experiment needs it.
    base = target.name.split(":")[0]
    on_graphs = target.after if base in GENERATES_CODE and target.after else target
    wrong_pass = _StepSearch(case, on_graphs, violation, eager).pass_at_fault()
    if wrong_pass is not None or on_graphs is target:
        return wrong_pass
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
        # Such a compiler calls torch on its way: what AOTAutograd makes is not what runs.
        outside = self.target.needs is not None
        function, error = self._compile(compiled, watched=not outside)
        if outside and error is None:
            return self._first_wrong(compiled, function, stages_as_steps(compiled.build))
        if error is not None and not compiled.complete:
            part = where_raised(error)
            return None if part is None else PassAtFault(part)
        if not compiled.single:  # the function consists of several graphs
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
        judged = self._judge(compiled, function)
        at_fault, last_right = None, None
        for step in steps:
            wrong = judged.wrong(step)
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
        """The traced graph, if it is right when these operators are not decomposed."""
        compiled = SteppedFunction(undecomposed=undecomposed)
        function, _ = self._compile(compiled)
        step = next(
            (candidate for candidate in compiled.steps if candidate.name == FUNCTIONALIZATION), None
        )
        if step is None or self._judge(compiled, function).wrong(step) is not False:
            return None
        return step.graph

    def _judge(self, compiled: SteppedFunction, function: Callable[..., object]) -> _StepJudge:
        return _StepJudge(self.case, self.target, self.violation, self.eager, compiled, function)


@dataclass(frozen=True, slots=True)
class _StepJudge:
    """Says of a step whether it shows the violation."""

    case: Case
    target: Target
    violation: Violation
    eager: EagerRun
    compiled: SteppedFunction
    function: Callable[..., object]

    def wrong(self, step: Step) -> bool | None:
        """Whether a step shows the violation; None if this step cannot be judged."""
        self.compiled.chosen = step
        try:
            violations = self._violations(step)
        except (Rejected, InternalError):  # an oracle cannot judge this graph
            return None
        finally:
            self.compiled.chosen = None
        if any(map(self._is_same, violations)):
            return True
        # In the middle of a compilation, a graph may hold what only a compiler can run.
        failed = any(not other.silent for other in violations)
        return None if failed else False

    def _is_same(self, other: Violation) -> bool:
        # What is wrong at other places may be the fault of a layer before the user's code.
        here = not self.target.yours or other.place == self.violation.place
        return here and same_promise(other, self.violation)

    def _violations(self, step: Step) -> list[Violation]:
        oracle = self.violation.oracle
        if oracle in _ON_STAGES:
            return self._on_stage(step, oracle)
        seed_generators()
        if oracle == equivalence.ORACLE.name:
            return self._on_value_hashes()
        if step.layer in REPLAYED:
            with replaying({} if step.graph is None else {str(step.layer): step.graph}):
                actual = observe(self._compiled_again, self.case.fresh_inputs())
        else:
            actual = observe(self.function, self.case.fresh_inputs())
        contract = self.target.contract
        return judge(contract, self.eager.observation, actual, self.eager.trace).violations

    def _compiled_again(self, *inputs: torch.Tensor) -> object:
        build = self.target.build(self.case.function, self.case.fresh_inputs())
        seed_generators()
        return build.function(*inputs)

    def _on_value_hashes(self) -> list[Violation]:
        def hashes(seed: int) -> tuple[ValueHashes, ValueHashes]:
            expected = run_uninterpreted(self.case.function, self.case.fresh_inputs(), seed=seed)
            seed_generators()
            actual = run_uninterpreted(self.function, self.case.fresh_inputs(), seed=seed)
            return expected, actual

        contract, trace = self.target.contract, self.eager.trace
        return list(equivalence.judge(contract, *hashes(0), trace, lambda: hashes(1)).violations)

    def _on_stage(self, step: Step, oracle: str) -> list[Violation]:
        build, inputs = self.compiled.build, self.compiled.graph_inputs
        if step.graph is None or step.layer != GRAPH or inputs is None:
            return []
        assert build is not None
        stage = Stage(step.name, step.graph, build.stages[-1].functional, whole=False)
        runs = [run_stage(stage, clone_inputs(inputs))]
        # A clobber is judged against the functional graph that the passes began with.
        first = next(
            earlier.graph
            for earlier in self.compiled.steps
            if earlier.graph and earlier.layer == GRAPH
        )
        if oracle == clobbers.ORACLE.name and first is not step.graph:
            before = Stage("functional graph", first, functional=True, whole=False)
            runs.insert(0, run_stage(before, clone_inputs(inputs)))
        return list(_ON_STAGES[oracle](self.target.contract, runs, self.eager.trace).violations)
