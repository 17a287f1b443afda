"""A `PythonProgram` in eager and through the layers of `torch.compile`, judged by what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import Rejected
from aliasproof.ir.python_program import PythonProgram
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import Judgement, all_not_applicable, judge
from aliasproof.oracles.place_names import renamed_report
from aliasproof.oracles.raised_errors import skeleton
from aliasproof.oracles.verdict import Violation, not_applicable, report_of
from aliasproof.processes.isolation import ORACLES_STEP, TARGET_STEP, step
from aliasproof.targets.dynamo import unmeasured
from aliasproof.targets.inductor_fx import DRAWS_AS_EAGER
from aliasproof.targets.registry import target as target_named
from aliasproof.trials.python_run import PythonRun, run_in_eager, run_python

LAYERS = ("dynamo", "aot-eager", "inductor")  # each builds on those before it
STRUCTURE = "structure"  # what is there at all, and of which type
EVERYTHING = Contract()  # the empty contract promises everything
_NO_ERROR = "does not raise"
EAGER = "identity"  # eager again, in a second world: any difference is a mistake of ours


class Cause(NamedTuple):
    """The target at fault, the oracle that sees it, and the kind of its violation."""

    target: str
    oracle: str
    kind: str


@dataclass(frozen=True, slots=True)
class PythonExamination:
    """What differs from eager, through which target, the first that does.

    `main` is the first violation. `documented` differences are no violations.
    """

    target: str
    violations: Sequence[Violation] = ()
    documented: int = 0

    @property
    def main(self) -> Violation | None:
        return next(iter(self.violations), None)

    @property
    def cause(self) -> Cause | None:
        """What a reduction must keep."""
        main = self.main
        return None if main is None else Cause(self.target, main.oracle, main.kind)


def examine_python(program: PythonProgram, target: str) -> PythonExamination:
    """Run in eager and through a target and the layers below it; the first that is wrong.

    A difference counts if a second run shows it. Raises `Undefined` if the program is undefined in
    eager.
    """
    expected, trace = run_in_eager(program)
    found = whole = _compare(program, target, expected, trace)
    # Most programs hold, and then one compilation tells. A later layer may mend an earlier one.
    if not whole.violations:
        return whole
    for layer in layers(target):
        found = whole if layer == target else _compare(program, layer, expected, trace)
        if found.violations:
            again = _compare(program, layer, expected, trace)
            kinds = {(one.oracle, one.kind) for one in again.violations}
            both = [one for one in found.violations if (one.oracle, one.kind) in kinds]
            found = replace(found, violations=tuple(both))
        if found.violations:
            break
    return found


def examine_layer(program: PythonProgram, layer: str) -> PythonExamination:
    """Run in eager and through one layer, whatever those before it do. Raises `Undefined`."""
    expected, trace = run_in_eager(program)
    return _compare(program, layer, expected, trace)


def layers(target: str) -> list[str]:
    """The target and those that it builds on, in their order."""
    if target in LAYERS:
        return list(LAYERS[: LAYERS.index(target) + 1])
    return [target] if target == EAGER else [*LAYERS[:-1], target]


def compiler(target: str, *, draws: bool = False) -> Callable[[Any], Any]:
    """What compiles `program` for a target; it is called once in each run.

    Of a program that `draws` random numbers, Inductor must draw those of eager.
    """
    if target == EAGER:
        # `torch.cond` compiles its branches in eager, too.
        without: Callable[[Any], Any] = torch.compiler.set_stance("force_eager")
        return without
    options = DRAWS_AS_EAGER if draws and target == "inductor" else None
    return compiled_by(target_named(target).backend, options)


def compiled_by(backend: Any, options: Any = None) -> Callable[[Any], Any]:
    """What compiles `program` with a backend, as for one that was never compiled."""
    unmeasured()
    FakeTensorMode.cache_clear()
    return lambda program: torch.compile(program, backend=backend, options=options)


def _compare(
    program: PythonProgram, target: str, expected: PythonRun, trace: Trace
) -> PythonExamination:
    contract = EVERYTHING if target == EAGER else target_named(target).contract
    compiled = compiler(target, draws=trace.random)
    return compare(program, compiled, expected, trace, contract, target)


def compare(
    program: PythonProgram,
    compiled: Callable[[Any], Any],
    expected: PythonRun,
    trace: Trace,
    contract: Contract = EVERYTHING,
    target: str = "",
) -> PythonExamination:
    """Run it with what `compiled` makes of `program`, and compare with a run in eager."""
    step(TARGET_STEP)
    actual = run_python(program, compiled)
    step(ORACLES_STEP)
    judgement = judge_runs(contract, expected, actual, trace)
    return PythonExamination(target, tuple(judgement.violations), len(judgement.documented))


def judge_runs(
    contract: Contract,
    expected: PythonRun,
    actual: PythonRun,
    trace: Trace,
    excuse: Callable[[Judgement], Judgement] = lambda judgement: judgement,
) -> Judgement:
    """The reports of the oracles on results, and of *structure*; places are named by their paths.

    `excuse` gets the judgement before, and leaves out what breaks no promise.
    """
    raise_both = expected.observation.error and actual.observation.error
    # Where the backward pass raises in both runs, what was there before it is compared. A compiler
    # may refuse a function at once whose backward pass raises in eager.
    if raise_both and expected.called and actual.called:
        return judge_runs(contract, expected.called, actual.called, trace, excuse)
    missing = _structure(expected, actual)
    if missing:
        reports = dict(all_not_applicable("eager and target leave other things behind").reports)
    else:
        # Autograd forbids to read some views after a write to their base.
        with torch.no_grad():
            judgement = judge(contract, expected.observation, actual.observation, trace)
        reports = dict(excuse(judgement).reports)
        judged = any(report.violations for report in reports.values())
        missing = () if judged else _kinds(expected, actual)
    raised = expected.observation.error or actual.observation.error
    reports[STRUCTURE] = not_applicable("") if raised else report_of(missing)
    names = {f"output {index}": path for index, path in enumerate(expected.paths)}
    return Judgement({name: renamed_report(report, names) for name, report in reports.items()})


def _structure(expected: PythonRun, actual: PythonRun) -> Sequence[Violation]:
    """Paths that only one of the runs has; none if one raised."""
    if expected.observation.error is not None or actual.observation.error is not None:
        return ()
    lost = [path for path in expected.paths if path not in actual.paths]
    new = [path for path in actual.paths if path not in expected.paths]
    if lost:
        return [Violation(STRUCTURE, "something is missing", lost[0])]
    if new:
        return [Violation(STRUCTURE, "something is new", new[0])]
    pairs = zip(expected.paths, actual.paths, strict=True)
    moved = next((path for path, other in pairs if path != other), None)
    if moved is not None:
        return [Violation(STRUCTURE, "another order", moved)]
    return ()


def _kinds(expected: PythonRun, actual: PythonRun) -> Sequence[Violation]:
    """Leaves of another type, or that require gradients in one run alone."""
    return [
        Violation(
            STRUCTURE,
            "another type, or gradients",
            path,
            {"eager": kind, "target": actual.kinds[path]},
        )
        for path, kind in expected.kinds.items()
        if actual.kinds.get(path, kind) != kind
    ]


@dataclass(slots=True)
class FailsAlike:
    """Whether a program is defined in eager, and its target differs by the same oracle and kind.

    If eager is expected to raise, it raises what it raised for the first program that failed.
    `compiled` counts the programs that eager did not refuse.
    """

    cause: Cause
    compiled: int = 0
    _raised: str | None = None

    def __call__(self, program: PythonProgram) -> bool:
        """Ask about a program. Raises `InternalError` for a mistake of ours."""
        try:
            expected, trace = run_in_eager(program)
            error = expected.observation.error
            raised = "" if error is None else skeleton(error)
            if (error is not None) != self.cause.kind.startswith(_NO_ERROR):
                return False
            if self._raised not in (None, raised):
                return False
            self.compiled += 1
            fails = _compare(program, self.cause.target, expected, trace).cause == self.cause
        except Rejected:
            return False
        if fails:
            self._raised = raised
        return fails
