"""`first_wrong_pass`: the pass of a compiler after which a program is wrong.

The target compiles the program once. Then every step of the compilation runs with the program's
inputs, in the place where the compiled graph would run, and the same oracle judges it under the
same contract. The pass at fault is the first wrong step after the last right one. The first wrong
step alone would not do, since a later pass may repair what an earlier one breaks. Bisection would
not do either, for the same reason.

If all graphs are right, the code that is generated from the last one is wrong. Then experiments
tell the part of the code generator (`aliasproof.trials.code_generation`).
"""

from __future__ import annotations

import contextlib
import functools
import operator as operators
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import seed_generators
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles import clobbers, equivalence, invariants
from aliasproof.oracles.equivalence import ValueHashes, run_uninterpreted
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import observe
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.stage_run import run_stage
from aliasproof.oracles.verdict import Violation
from aliasproof.targets import second_calls
from aliasproof.targets.names import is_outside
from aliasproof.targets.target import Target
from aliasproof.trials.choosable import GRAPH, Choosable, Step, stages_as_steps
from aliasproof.trials.code_generation import GENERATES_CODE, WHOLE_GENERATOR, part_at_fault
from aliasproof.trials.compile_errors import where_raised
from aliasproof.trials.promises import same_promise
from aliasproof.trials.training_steps import REPLAYED, replaying
from aliasproof.trials.trial import Case, EagerRun, run_eager

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
        compiled = Choosable()
        # Such a compiler calls torch on its way: what AOTAutograd makes is not what runs.
        outside = is_outside(self.target.name)
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
        self, compiled: Choosable, *, watched: bool = True
    ) -> tuple[Callable[..., object], BaseException | None]:
        FakeTensorMode.cache_clear()  # as for each trial
        sample = self.case.fresh_inputs()
        with compiled.compiling() if watched else contextlib.nullcontext():
            function = compiled.around(self.target, self.case.function, sample)
            seed_generators()
            return function, observe(function, self.case.fresh_inputs()).error

    def _first_wrong(
        self, compiled: Choosable, function: Callable[..., object], steps: Sequence[Step]
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
        compiled = Choosable(undecomposed=undecomposed)
        function, _ = self._compile(compiled)
        step = next(
            (candidate for candidate in compiled.steps if candidate.name == FUNCTIONALIZATION), None
        )
        if step is None or self._judge(compiled, function).wrong(step) is not False:
            return None
        return step.graph

    def _judge(self, compiled: Choosable, function: Callable[..., object]) -> _StepJudge:
        return _StepJudge(self.case, self.target, self.violation, self.eager, compiled, function)


@dataclass(frozen=True, slots=True)
class _StepJudge:
    """Says of a step whether it shows the violation."""

    case: Case
    target: Target
    violation: Violation
    eager: EagerRun
    compiled: Choosable
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
