"""`Symptom`: the observable kind of a failure; and which target is at fault.

During a reduction, every candidate must keep the symptom of the failure. Otherwise the reducer
would end at another bug, since a simpler one is often near.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import seed_generators
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.python_case import PythonCase
from aliasproof.judge.trial import Case, EagerRun, Subject, Trial, run_eager, run_trial
from aliasproof.oracles import equivalence
from aliasproof.oracles.equivalence import ValueHashes, differences, run_uninterpreted
from aliasproof.oracles.errors import skeleton
from aliasproof.oracles.judge import (
    ON_GRAPHS,
    Judgement,
    all_not_applicable,
    judge_graphs,
)
from aliasproof.oracles.stage_run import run_stage
from aliasproof.oracles.verdict import Report, Verdict, Violation, same_promise
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target

# --- graphs ---------------------------------------------------------------------------------------


# These oracles take up to 100 bytes of memory per byte of a run's storages.
MOST_BYTES = 32 << 20
TOO_LARGE = f"oracles on graphs judge runs of at most {MOST_BYTES:,}"


def examine_graphs(case: Subject, target: Target, trial: Trial) -> Judgement:
    """Run the graphs of a trial's target and judge them.

    The oracles are not applicable to a trial that raised. Raises `InternalError` if a run fails now
    that succeeded earlier, and `Rejected` if an oracle cannot judge these graphs.
    """
    if trial.trace.nbytes > MOST_BYTES:
        reason = f"too large: the run has {trial.trace.nbytes:,} bytes of storages, {TOO_LARGE}"
        return Judgement(dict.fromkeys(ON_GRAPHS, Report(Verdict.UNKNOWN, reason=reason)))
    raised = trial.eager.error is not None or trial.target.error is not None
    if trial.build is None or raised:
        reason = "a run that raised has no graphs to judge" if raised else ""
        return all_not_applicable(reason, ON_GRAPHS)
    assert isinstance(case, Case)  # other subjects have no build
    function = trial.build.under_modes()
    if isinstance(function, str):
        return all_not_applicable(function, ON_GRAPHS)
    case = case.under(target)

    def value_hashes(*, named: bool, seed: int) -> tuple[ValueHashes, ValueHashes]:
        eager = _value_hashes(case.function, case, named=named, seed=seed)
        return eager, _value_hashes(function, case, named=named, seed=seed)

    hashes = value_hashes(named=False, seed=0)
    # Only needed if there is a difference, which it may excuse; it costs one more run.
    if trial.trace.as_written is None and differences(*hashes):
        trial.trace.as_written = _is_as_written(case, trial)
    stages = []
    for stage in trial.build.stages:
        # A whole stage takes the inputs of the case. Any other stage is called by a wrapper: its
        # inputs are clones of what the wrapper passed, or None if it was never called.
        given = case.fresh_inputs() if stage.whole else stage.inputs
        if given is not None:
            seed_generators()
            stages.append(run_stage(stage, given))
    # Named hashes cost time and only a report of a violation needs them, so they are lazy.
    return judge_graphs(
        target.contract, hashes, lambda: value_hashes(named=True, seed=1), stages, trial.trace
    )


def _is_as_written(case: Case, trial: Trial) -> bool:
    """Whether a user's function is known to call no composite operator that computes."""
    # Composite operators are visible only in inference mode, in which there is no autograd.
    if trial.trace.differentiates:
        return False
    try:
        run = run_uninterpreted(case.function, case.fresh_inputs(), composites=True)
        return run.composites == ()
    # A function may need what inference mode forbids. Then the answer is unknown.
    except Exception:  # noqa: BLE001 - see above
        return False


def _value_hashes(
    function: Callable[..., Any], case: Case, *, named: bool, seed: int
) -> ValueHashes:
    """The value hashes that a function leaves behind under uninterpreted execution."""
    seed_generators()
    try:
        return run_uninterpreted(function, case.fresh_inputs(), named=named, seed=seed)
    except (Rejected, InternalError):
        raise
    except Exception as error:
        # The same function ran on real values earlier, so this error is ours.
        raise InternalError(
            f"uninterpreted execution failed: {type(error).__name__}: {error}"
        ) from error


# --- attribution ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Symptom:
    """The target at fault, the oracle that reports the violation, and the kind of the violation."""

    target: str
    oracle: str
    kind: str

    @property
    def latent(self) -> bool:
        """True if results do not show it: only the value hashes of the whole run differ."""
        return self.oracle == equivalence.ORACLE.name


def at_fault(
    case: Subject, target: Target, trial: Trial, violation: Violation
) -> tuple[Target, Violation]:
    """The target at fault, among this one and those that it builds on; and its main violation.

    The layers before this one run, from the nearest to the first, as long as they break the same
    promise. A right layer ends the search: what is wrong before it was either repaired, or is
    another bug, such as a wrong stride where this target has wrong values.
    """
    layers = case.earlier_layers(target)
    for fewer in layers.varies:
        state = _layer(case, fewer, target, trial, violation)
        if isinstance(state, _Wrong):
            return at_fault(case, fewer, state.trial, state.main)
    earlier = layers.after
    while earlier is not None:
        state = _layer(case, earlier, target, trial, violation)
        if isinstance(state, _Wrong):
            return at_fault(case, earlier, state.trial, state.main)
        if state is _RIGHT:
            break
        earlier = case.earlier_layers(earlier).after
    if layers.layer is not None:
        state = _layer(case, layers.layer, target, trial, violation, other_interface=True)
        if isinstance(state, _Wrong):
            return at_fault(case, layers.layer, state.trial, state.main)
    return target, violation


def inherited(case: Subject, target: Target, trial: Trial) -> dict[Violation, Target]:
    """The violations that a layer before a user's code shows at the same locations, with it."""
    if not target.yours or not trial.judgement.violations:
        return {}
    shown: dict[Violation, Target] = {}
    layers = case.earlier_layers(target)
    for layer in (layers.after, layers.layer):
        if layer is None:
            continue
        try:
            earlier = run_trial(case, layer, eager=_eager_for(layer, target, trial))
        except Rejected:  # the layer does not take this case
            continue
        shown |= dict.fromkeys(earlier.judgement.violations, layer)
    return {one: shown[one] for one in trial.judgement.violations if one in shown}


def _eager_for(layer: Target, target: Target, trial: Trial) -> EagerRun | None:
    """The run in eager of a trial of the target, if eager runs under the same conditions."""
    return EagerRun(trial.eager, trial.trace) if layer.conditions is target.conditions else None


class _Wrong(NamedTuple):
    """A layer that also breaks the violated promise: its trial and its main violation."""

    trial: Trial
    main: Violation


_RIGHT = object()


def _layer(
    case: Subject,
    earlier: Target,
    target: Target,
    trial: Trial,
    violation: Violation,
    *,
    other_interface: bool = False,
) -> _Wrong | object | None:
    """Whether an earlier layer breaks the promise of a violation; None if it cannot be judged.

    A layer with another interface is wrong only if its main violation is of the same kind.
    """
    try:
        earlier_trial, main = _main_violation(case, earlier, _eager_for(earlier, target, trial))
    except Rejected:  # the earlier target does not take this case
        return None
    if main is not None:
        candidates = [main] if other_interface else earlier_trial.judgement.violations
        if any(same_promise(candidate, violation) for candidate in candidates):
            return _Wrong(earlier_trial, main)
        # If this layer raises, so does a compilation that continues after it. But if a backend
        # raises, an error inside Dynamo without that backend is a later one.
        later = "BackendCompilerFailed" in violation.kind and "TorchDynamoError" in main.kind
        if not other_interface and not later and _raises(main) and _raises(violation):
            return _Wrong(earlier_trial, main)
        if not main.silent:
            return None
    # A layer whose documentation waives the promise does not end the search.
    waived = (documented.difference for documented in earlier_trial.judgement.documented)
    return None if any(same_promise(difference, violation) for difference in waived) else _RIGHT


def _raises(violation: Violation) -> bool:
    return violation.oracle == "errors" and violation.kind.startswith("raises")


def shows(program: Program, target: Target, symptom: Symptom) -> bool:
    """True if the program is defined in eager and fails twice with this symptom.

    The *main* violation must have the oracle and the kind of the symptom, and the target at fault
    must be the symptom's. Two runs, since a flaky failure cannot be reduced.
    """
    return grade(program, target, symptom) == 1


def grade(program: Program, target: Target, symptom: Symptom) -> int:
    """Which of `grades_of(symptom)` the program shows, counted from 1; 0 if it shows none."""
    case = Case.of(program)
    try:
        if symptom.latent:
            latent = latent_violation(case, target)
            same = latent is not None and latent.kind == symptom.kind
            return int(same and latent_at_fault(case, target).name == symptom.target)
        first, main = _main_violation(case, target)
        if main is None:
            return 0
        shown = (main.oracle, main.kind)
        kinds = [(wanted.oracle, wanted.kind) for wanted in grades_of(symptom)]
        if shown not in kinds:
            return 0
        # Compare violations, not only symptoms: another location would be another failure.
        _, again = _main_violation(case, target)
    except Rejected:
        return 0
    if main != again or at_fault(case, target, first, main)[0].name != symptom.target:
        return 0
    return kinds.index(shown) + 1


def grades_of(symptom: Symptom) -> tuple[Symptom, ...]:
    """A symptom, and the better ones that a similar program may have, the best last.

    A wrong value is better evidence than a wrong layout or alias that may lead to one.
    """
    if symptom.oracle not in ("aliasing", "objects", "metadata"):
        return (symptom,)
    inputs = Symptom(symptom.target, "inputs", "input ends wrong")
    return (symptom, inputs, Symptom(symptom.target, "values", "wrong value"))


# --- latent: results are right, and the graph is wrong for other values ---------------------------


def latent_violation(case: Case, target: Target) -> Violation | None:
    """The first violation of *equivalence*, if results are right. Raises `Rejected`."""
    trial = run_trial(case, target)
    if trial.judgement.violations:
        return None
    report = examine_graphs(case, target, trial).reports[equivalence.ORACLE.name]
    return next(iter(report.violations), None)


def latent_at_fault(case: Case, target: Target) -> Target:
    """The earliest target that is latent, among this one and those that it builds on."""
    for earlier in target.earlier:
        try:
            latent = latent_violation(case, earlier)
        except Rejected:  # the earlier target does not take this case, so it is not at fault
            continue
        if latent is not None:
            return latent_at_fault(case, earlier)
    return target


def _main_violation(
    case: Subject, target: Target, eager: EagerRun | None = None
) -> tuple[Trial, Violation | None]:
    """A trial, and its first violation in the order of the oracles."""
    trial = run_trial(case, target, eager=eager)
    return trial, next(iter(trial.judgement.violations), None)


# --- Python code ----------------------------------------------------------------------------------


_NO_ERROR = "does not raise"


@dataclass(slots=True)
class FailsAlike:
    """Whether a program is defined in eager, and its target differs by the same oracle and kind.

    If the symptom expects eager to raise, the error must equal `raised`; by default, the error of
    the first program that failed. `compiled` counts the programs that were compiled.
    """

    symptom: Symptom
    raised: str | None = None
    compiled: int = 0

    def __call__(self, program: PythonProgram) -> bool:
        """Test a program. Raises `InternalError` for a mistake of ours."""
        try:
            case = PythonCase(program)
            eager = run_eager(case)
            error = eager.observation.error
            raised = "" if error is None else skeleton(error)
            if (error is not None) != self.symptom.kind.startswith(_NO_ERROR):
                return False
            if self.raised not in (None, raised):
                return False
            self.compiled += 1
            _, main = _main_violation(case, target_named(self.symptom.target), eager)
        except Rejected:
            return False
        shown = self.symptom.oracle, self.symptom.kind
        if main is None or (main.oracle, main.kind) != shown:
            return False
        self.raised = raised
        return True
