"""`Symptom`, and which target is at fault.

While a program is being reduced, every candidate must keep the *symptom* of the failure: the target
at fault, the oracle that reports it, and the kind of the violation.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracles.verdict import Violation
from programs.errors import Rejected
from programs.program import Program
from targets.target import Target
from trials.trial import Case, EagerRun, Trial, run_trial


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a reader sees: the target at fault, the oracle that reports it, the kind of violation."""

    target: str
    oracle: str
    kind: str


def at_fault(
    case: Case, target: Target, trial: Trial, violation: Violation
) -> tuple[Target, Violation]:
    """The earliest target that this one builds on and that is wrong too, and its main violation.

    A mistake of an earlier target hides what a later one does. So a later target is at fault only
    on programs on which all earlier ones are right.
    """
    if target.after is None:
        return target, violation
    try:
        earlier, main = _main_violation(case, target.after, EagerRun(trial.eager, trial.trace))
    except Rejected:
        return target, violation
    return (target, violation) if main is None else at_fault(case, target.after, earlier, main)


def shows(program: Program, target: Target, symptom: Symptom) -> bool:
    """True if the program is defined in eager and fails with this symptom, twice.

    The main violation must be the one meant, and no target that this one builds on may fail.
    """
    case = Case.of(program)
    try:
        first, main = _main_violation(case, target)
        if main is None or (main.oracle, main.kind) != (symptom.oracle, symptom.kind):
            return False
        _, again = _main_violation(case, target)
    except Rejected:
        return False
    return main == again and at_fault(case, target, first, main)[0].name == symptom.target


def _main_violation(
    case: Case, target: Target, eager: EagerRun | None = None
) -> tuple[Trial, Violation | None]:
    trial = run_trial(case, target, eager=eager)
    return trial, next(iter(trial.judgement.violations), None)
