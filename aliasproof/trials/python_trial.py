"""A `PythonProgram` in eager and through the layers of `torch.compile`, judged by what is left."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import judge
from aliasproof.oracles.place_names import renamed
from aliasproof.oracles.raised_errors import skeleton
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.isolation import ORACLES_STEP, TARGET_STEP, step
from aliasproof.programs.errors import Rejected
from aliasproof.programs.python_program import PythonProgram
from aliasproof.programs.trace import Trace
from aliasproof.targets.dynamo import unmeasured
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.registry import user_code
from aliasproof.targets.user_builds import Backend, backend_of_code
from aliasproof.targets.user_names import require_grant
from aliasproof.trials.python_run import PythonRun, run_in_eager, run_python

# By target, the backend of `torch.compile`; in their order, each builds on those before it.
BACKENDS: dict[str, str] = {
    "dynamo": "eager",
    "aot-eager": "aot_eager",
    "inductor": "inductor",
}
REFERENCE = "reference"
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
    found = PythonExamination(target)
    # Most programs hold, and then one compilation tells. A later layer may mend an earlier one.
    if not _compare(program, target, expected, trace).violations:
        return found
    for layer in layers(target):
        found = _compare(program, layer, expected, trace)
        if found.violations:
            again = _compare(program, layer, expected, trace)
            kinds = {(one.oracle, one.kind) for one in again.violations}
            both = [one for one in found.violations if (one.oracle, one.kind) in kinds]
            found = replace(found, violations=tuple(both))
        if found.violations:
            break
    return found


def layers(target: str) -> list[str]:
    """The target and those that it builds on, in their order."""
    names = list(BACKENDS)
    if target in BACKENDS:
        return names[: names.index(target) + 1]
    return [target] if target == EAGER else [*names[: names.index("inductor")], target]


@functools.cache
def backend_of(target: str) -> Backend:
    """The backend of `torch.compile` that a target is.

    Raises `UserError` if a user's code is not granted, or is neither a pass nor a backend.
    """
    code = user_code(target)
    if code is not None:
        require_grant(code)
        return backend_of_code(code)
    name = BACKENDS.get(target, "aliasproof")
    return Backend(name, "", f'"{name}"')


def compiler(target: str) -> Callable[[Any], Any]:
    """What compiles `program` for a target; it is called once in each run."""
    if target == EAGER:
        # `torch.cond` compiles its branches in eager, too.
        without: Callable[[Any], Any] = torch.compiler.set_stance("force_eager")
        return without
    unmeasured()
    return lambda program: torch.compile(program, backend=backend_of(target).value)


def _compare(
    program: PythonProgram, target: str, expected: PythonRun, trace: Trace
) -> PythonExamination:
    FakeTensorMode.cache_clear()
    contract = EVERYTHING if target == EAGER else target_named(target).contract
    return compare(program, compiler(target), expected, trace, contract, target)


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
    violations, documented = [*_structure(expected, actual)], 0
    if not violations:
        judgement = judge(contract, expected.observation, actual.observation, trace)
        violations = judgement.violations or [*_kinds(expected, actual)]
        documented = len(judgement.documented)
    names = {f"output {index}": path for index, path in enumerate(expected.paths)}
    named = tuple(replace(one, place=renamed(one.place, names)) for one in violations)
    return PythonExamination(target, named, documented)


def _structure(expected: PythonRun, actual: PythonRun) -> Sequence[Violation]:
    """Paths that only one of the runs has; none if one raised."""
    if expected.observation.error is not None or actual.observation.error is not None:
        return ()
    lost = [path for path in expected.paths if path not in actual.paths]
    new = [path for path in actual.paths if path not in expected.paths]
    if lost:
        return [Violation("structure", "something is missing", lost[0])]
    if new:
        return [Violation("structure", "something is new", new[0])]
    pairs = zip(expected.paths, actual.paths, strict=True)
    moved = next((path for path, other in pairs if path != other), None)
    if moved is not None:
        return [Violation("structure", "another order", moved)]
    return ()


def _kinds(expected: PythonRun, actual: PythonRun) -> Sequence[Violation]:
    """Leaves of another type, or that require gradients in one run alone."""
    return [
        Violation(
            "structure",
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
