"""A `PythonProgram` in eager and through the layers of `torch.compile`, judged by what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.corpus.known_bugs import KNOWN_BUGS, mended
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import judge
from aliasproof.oracles.place_names import renamed
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.isolation import ORACLES_STEP, TARGET_STEP, step
from aliasproof.programs.python_program import PythonProgram
from aliasproof.programs.trace import Trace
from aliasproof.targets.registry import target as target_named
from aliasproof.trials.python_run import PythonRun, run_in_eager, run_python

# By target, the backend of `torch.compile`; in their order, each builds on those before it.
BACKENDS: dict[str, str] = {
    "dynamo": "eager",
    "aot-eager": "aot_eager",
    "inductor": "inductor",
}
REFERENCE = "reference"
EAGER = "identity"  # eager again, in a second world: any difference is a mistake of ours


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
    def cause(self) -> tuple[str, str, str] | None:
        """What a reduction must keep: the target, the oracle and the kind."""
        main = self.main
        return None if main is None else (self.target, main.oracle, main.kind)


def examine_python(
    program: PythonProgram, target: str, *, past_known: bool = False
) -> PythonExamination:
    """Run in eager and through a target and the layers below it; the first that is wrong.

    With `past_known`, known bugs of torch are mended where that can be. A difference counts if a
    second run shows it. Raises `Undefined` if the program is undefined in eager.
    """
    expected, trace = run_in_eager(program)
    with mended(KNOWN_BUGS.values() if past_known else ()):
        examination = PythonExamination(target)
        for layer in layers(target):
            examination = _compare(program, layer, expected, trace)
            if examination.violations:
                again = _compare(program, layer, expected, trace)
                kinds = {(one.oracle, one.kind) for one in again.violations}
                both = [one for one in examination.violations if (one.oracle, one.kind) in kinds]
                examination = replace(examination, violations=both)
            if examination.violations:
                break
    return examination


def layers(target: str) -> list[str]:
    """The target and those that it builds on, in their order."""
    if target not in BACKENDS:
        return [target]
    names = list(BACKENDS)
    return names[: names.index(target) + 1]


def compiler(target: str) -> Callable[[Any], Any]:
    """What compiles `program` for a target; it is called once in each run."""
    if target == EAGER:
        return lambda program: program
    return lambda program: torch.compile(program, backend=BACKENDS.get(target, "aliasproof"))


def _compare(
    program: PythonProgram, target: str, expected: PythonRun, trace: Trace
) -> PythonExamination:
    FakeTensorMode.cache_clear()
    step(TARGET_STEP)
    actual = run_python(program, compiler(target))
    step(ORACLES_STEP)
    contract = Contract() if target == EAGER else target_named(target).contract
    violations = [*_structure(expected, actual)]
    documented = 0
    if not violations:
        judgement = judge(contract, expected.observation, actual.observation, trace)
        violations, documented = judgement.violations, len(judgement.documented)
        kinds = [*_kinds(expected, actual)] if not violations else []
        violations += kinds
    names = {f"output {index}": path for index, path in enumerate(expected.paths)}
    return PythonExamination(
        target, [replace(one, place=renamed(one.place, names)) for one in violations], documented
    )


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
    if list(expected.paths) != list(actual.paths):
        return [Violation("structure", "another order", str(expected.paths[0]))]
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
