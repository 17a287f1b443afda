"""`Symptom` and `Signature`: what makes two violations the same bug.

While a program is being reduced, every candidate must keep the *symptom*: the target at fault, the
oracle and the kind of violation. What is left at the end has a *signature*: the symptom and the ops
of the reduced program; for an error the symptom alone, since its message tells bugs apart better
than the ops that lead to it. Equal signatures are one finding.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from oracles.observation import Observation
from oracles.verdict import Violation
from programs.errors import Rejected
from programs.program import Program
from programs.trace import Trace
from targets.target import Target
from trials.trial import Case, Trial, run_trial


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a reader sees: which target is at fault, which oracle noticed, and what kind of violation it is."""

    target: str
    oracle: str
    kind: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A symptom and the ops, in order, of the reduced program that shows it (no ops if the symptom is an error)."""

    symptom: Symptom
    ops: tuple[str, ...]

    @property
    def identifier(self) -> str:
        """A short name that is the same in every run, such as `aot-values-3f2a91c0`."""
        text = "\n".join((self.symptom.target, self.symptom.oracle, self.symptom.kind, *self.ops))
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{self.symptom.target}-{self.symptom.oracle}-{digest}"


def signature(symptom: Symptom, program: Program) -> Signature:
    """The signature of a reduced program."""
    ops = () if symptom.oracle == "errors" else tuple(each.op for each in program.instructions)
    return Signature(symptom, ops)


def at_fault(
    subject: Case, target: Target, trial: Trial, violation: Violation
) -> tuple[Target, Violation]:
    """The earliest target that this one builds on which breaks a promise already, and its main violation.

    Whatever an earlier target does wrong clouds what a later one does, so a later one is blamed for
    programs only on which all earlier ones are right.
    """
    if target.after is None:
        return target, violation
    try:
        earlier, main = _main_violation(subject, target.after, (trial.eager, trial.trace))
    except Rejected:
        return target, violation
    return (target, violation) if main is None else at_fault(subject, target.after, earlier, main)


def shows(program: Program, target: Target, symptom: Symptom) -> bool:
    """True if the program is well defined and fails in just this way, through this target and none that it builds on.

    The main violation must be the one meant, and must come again on a second run.
    """
    subject = Case.of(program)
    try:
        first, main = _main_violation(subject, target)
        if main is None or (main.oracle, main.kind) != (symptom.oracle, symptom.kind):
            return False
        _, again = _main_violation(subject, target)
    except Rejected:
        return False
    return main == again and at_fault(subject, target, first, main)[0].name == symptom.target


def _main_violation(
    subject: Case, target: Target, eager: tuple[Observation, Trace] | None = None
) -> tuple[Trial, Violation | None]:
    trial = run_trial(subject, target, eager=eager)
    return trial, next(iter(trial.judgement.violations), None)
