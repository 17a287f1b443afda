"""`check` as a user calls the function: with gradients enabled, and the inputs as they are given.

The other rows of a check compile a function for inference, and compare what it leaves in detached
tensors. Here, all that the caller can reach is compared, with gradients. If the function calls no
`backward`, a backward pass over what it leaves follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from aliasproof.checks.eager_check import eager_result
from aliasproof.eager.definedness import Undefined
from aliasproof.eager.trace import InputLocation, Trace
from aliasproof.ir.errors import Rejected
from aliasproof.judge.examination import not_yours
from aliasproof.judge.python_run import FloatState, PythonRun, run_in_eager, run_python
from aliasproof.judge.python_trial import (
    EAGER,
    EVERYTHING,
    STRUCTURE,
    compiled_by,
    compiler,
    judge_runs,
    layers,
)
from aliasproof.judge.rounding_control import wide_factories, without_rounding
from aliasproof.oracles.check_result import EagerResult, Row, TargetResult
from aliasproof.oracles.judge import EVERY_ORACLE, ON_RESULTS, Judgement, all_not_applicable, judge
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import Report, Verdict, Violation, in_both, same_promise
from aliasproof.processes.isolation import ORACLES_STEP, TARGET_STEP, step
from aliasproof.reports.side_by_side import beside, named_rows
from aliasproof.targets.inductor_fx import DRAWS_AS_EAGER
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Function, Target
from aliasproof.user_code.user_call import RETURNED, SECOND, GradientUse, UserCall
from aliasproof.user_code.user_file import raised_text

AS_CALLED = " as called"  # after the name of a target, in the name of a row
ORACLES = (*ON_RESULTS, STRUCTURE, *EVERY_ORACLE[len(ON_RESULTS) :])
_NO_LIMIT = 0.0  # of seconds: the process of a check has one
_NOT_ASKED = Report(Verdict.NOT_APPLICABLE)


@dataclass(frozen=True, slots=True)
class CalledInEager:
    """A call that ran in eager with gradients. `eager` says if targets can be compared with it.

    `twice` is this call with a second one after it, if that can be judged.
    """

    call: UserCall
    eager: EagerResult
    run: PythonRun
    trace: Trace
    twice: CalledInEager | None = None


def prepare_as_called(
    function: Function,
    inputs: object,
    *,
    file: Path | None = None,
    device: str | None = None,
    always: bool = False,
) -> CalledInEager | None:
    """Run a function in eager, as the user calls it. Nothing that the user has is changed.

    None if it does nothing with gradients, unless `always`.
    """
    call = UserCall.of(function, inputs, device)
    given, reason = always or _requires_grad(call), None
    use = GradientUse()
    try:
        with use, torch.compiler.set_stance("force_eager"):
            run = run_python(call)
        requires = any("requires grad" in kind for kind in run.kinds.values())
        if not (given or use.seen or requires):
            return None
        call = replace(call, differentiated=not use.calls_backward)
        run, trace = run_in_eager(call, _NO_LIMIT)
        again = judge_runs(EVERYTHING, run, run_python(call, compiler(EAGER)), trace)
        for violation in again.violations[:1]:
            reason = f"two eager runs with gradients differ: {violation.describe()}"
    except Rejected as rejected:
        if not (given or use.seen):
            return None
        run, trace = PythonRun(Observation([], [])), Trace()
        reason = f"it cannot be judged with gradients: {rejected}"
        if isinstance(rejected, Undefined):
            reason = f"it is undefined in eager: {rejected}"
    trace.inputs = tuple(_locations(run))
    error = run.observation.error
    raised = None if error is None else raised_text(error, file)
    eager = eager_result(run.observation, trace, reason, raised)
    called = CalledInEager(call, replace(eager, names=_names(run)), run, trace)
    return called if reason or raised else replace(called, twice=_called_twice(called))


def _called_twice(called: CalledInEager) -> CalledInEager | None:
    """The same with a second call. None if that raises, is undefined, or depends on chance."""
    call, state = replace(called.call, twice=True), FloatState()
    try:
        run, trace = run_in_eager(call, _NO_LIMIT)
        again_run = run_python(replace(call, between=state.keep), compiler(EAGER))
        again = judge_runs(EVERYTHING, run, again_run, trace)
    except Rejected:
        return None
    if run.observation.error is not None or again.violations:
        return None
    trace.inputs = tuple(_locations(run))
    eager = eager_result(run.observation, trace, None, None)
    call = replace(call, between=state.restore)
    return CalledInEager(call, replace(eager, names=_names(run)), run, trace)


def _requires_grad(call: UserCall) -> bool:
    return any(tensor.requires_grad for _, tensor in call.surroundings.tensors().values())


def _locations(run: PythonRun) -> Iterator[InputLocation]:
    """Where the tensors are that the caller has, without those that were returned."""
    for path, leaf in zip(run.paths, run.observation.outputs, strict=True):
        if isinstance(leaf, torch.Tensor) and not path.startswith((RETURNED, SECOND + RETURNED)):
            yield InputLocation.of(leaf)


def _names(run: PythonRun) -> dict[str, str]:
    return {f"output {index}": path for index, path in enumerate(run.paths)}


# --- a target -------------------------------------------------------------------------------------


def check_as_called(called: CalledInEager, target: Target) -> TargetResult:
    """Compare what `torch.compile` with the backend of a target makes of the function.

    If one call holds, a second one is compared, with the same inputs and the state that the first
    one left: guards, and what compiled code writes, show there.
    """
    result = _checked(called, target)
    if result.violations or called.twice is None:
        return result
    second = _checked(called.twice, target)
    return second if second.violations else result


def _checked(called: CalledInEager, target: Target) -> TargetResult:
    name = f"{target.name}{AS_CALLED}"
    if called.eager.unjudged is not None:
        return TargetResult(name, None, all_not_applicable(called.eager.unjudged, ORACLES).reports)
    reports, actual = _judged(called, target)
    if any(report.differences for report in reports.values()):
        # A difference counts only if a second run shows it.
        again, actual = _judged(called, target)
        reports = {name: in_both(report, again[name]) for name, report in reports.items()}
    reports = {name: reports.get(name, _NOT_ASKED) for name in ORACLES}
    result = TargetResult(name, None, reports)
    if not any(report.differences for report in reports.values()):
        return result
    return _attributed(called, target, replace(result, rows=tuple(_beside(called.run, actual))))


def _beside(expected: PythonRun, actual: PythonRun) -> Iterator[Row]:
    """Both runs beside each other, by the paths of what they left."""
    ours, theirs = (
        dict(zip(run.paths, run.observation.outputs, strict=True)) for run in (expected, actual)
    )
    if list(ours) == list(theirs) or actual.observation.error or expected.observation.error:
        yield from named_rows(expected.observation, actual.observation, _names(expected))
    else:
        yield from beside(ours, theirs)


def _judged(called: CalledInEager, target: Target) -> tuple[Mapping[str, Report], PythonRun]:
    step(TARGET_STEP)
    actual = run_python(called.call, _compiler(called, target))
    step(ORACLES_STEP)
    excuse = partial(_without_rounding, called, target, actual)
    run, trace = called.run, called.trace
    return judge_runs(target.contract, run, actual, trace, excuse).reports, actual


def _compiler(called: CalledInEager, target: Target) -> Callable[[Any], Any]:
    draws = called.trace.random and target.backend == "inductor"
    return compiled_by(target.backend, DRAWS_AS_EAGER if draws else None)


def _without_rounding(
    called: CalledInEager, target: Target, actual: PythonRun, judgement: Judgement
) -> Judgement:
    """The judgement without what is rounding: both sides run again in float64."""
    runs = called.run.observation, actual.observation
    judged = torch.no_grad()(partial(judge, target.contract, *runs))  # as `judge_runs` does
    controls = [_Control(called, target)]
    return without_rounding(judgement, judged, runs, called.trace, controls)[0]


@dataclass(slots=True)
class _Control:
    """A call in float64, run where it is asked for."""

    called: CalledInEager
    tested: Target
    _exact: PythonRun | None = None
    _target: PythonRun | None = None

    def exact(self) -> Observation:
        if self._exact is None:
            with wide_factories():
                self._exact = run_python(self._call(), compiler(EAGER))
        return self._same(self._exact)

    def watched(self) -> tuple[Observation, Trace]:
        with wide_factories():
            run, trace = run_in_eager(self._call(), _NO_LIMIT)
        return self._same(run), trace

    def target(self) -> Observation:
        if self._target is None:
            with wide_factories():
                self._target = run_python(self._call(), _compiler(self.called, self.tested))
        return self._same(self._target)

    def _call(self) -> UserCall:
        return replace(self.called.call, wide=True)

    def _same(self, run: PythonRun) -> Observation:
        if run.paths != self.called.run.paths:
            raise Rejected("it leaves other things in float64")
        return run.observation


def _attributed(called: CalledInEager, target: Target, result: TargetResult) -> TargetResult:
    """The result with the first layer that is wrong; what it has wrong is not the user's fault."""
    inherited: dict[Violation, str] = {}
    for layer in layers(target.name)[:-1]:
        reports, _ = _judged(called, target_named(layer))
        for theirs in (one for report in reports.values() for one in report.violations):
            for ours in result.violations:
                if same_promise(ours, theirs):
                    inherited.setdefault(ours, layer)
    first = next((inherited[one] for one in result.violations if one in inherited), target.yours)
    if not target.yours:
        return replace(result, wrong_part=first)
    return replace(result, reports=not_yours(result.reports, inherited, target), wrong_part=first)
