"""`Symptom` and `Signature`: what makes two violations the same bug.

While a program is being reduced, every candidate must keep the *symptom*: the target at fault, the oracle and the kind of
violation. What is left at the end has a *signature*: the symptom and the ops of the reduced program. Equal signatures are
one finding.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from generators.errors import Rejected
from generators.program import Program
from oracles.verdict import Violation
from reduction.trial import Subject, Trial, run_trial
from targets.target import Target


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a reader sees: which target is at fault, which oracle noticed, and what kind of violation it is."""

    target: str
    oracle: str
    kind: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A symptom and the ops, in order, of the reduced program that shows it."""

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
    return Signature(symptom, tuple(each.op for each in program.instructions))


def at_fault(subject: Subject, target: Target, trial: Trial, violation: Violation) -> Target:
    """The earliest target in the chain that this one builds on which already shows such a violation."""
    if target.after is None:
        return target
    try:
        earlier = run_trial(subject, target.after, eager=(trial.eager, trial.trace))
    except Rejected:
        return target
    same = (each for each in earlier.judgement.violations if (each.oracle, each.kind) == (violation.oracle, violation.kind))
    found = next(same, None)
    return target if found is None else at_fault(subject, target.after, earlier, found)


def shows(program: Program, target: Target, symptom: Symptom) -> bool:
    """True if the program is well defined and fails in just this way, through this target and none that it builds on.

    The main violation must be the one meant, and must come again on a second run.
    """
    subject = Subject.of(program)
    try:
        first, main = _main_violation(subject, target)
        if main is None or (main.oracle, main.kind) != (symptom.oracle, symptom.kind):
            return False
        _, again = _main_violation(subject, target)
    except Rejected:
        return False
    return main == again and at_fault(subject, target, first, main).name == symptom.target


def _main_violation(subject: Subject, target: Target) -> tuple[Trial, Violation | None]:
    trial = run_trial(subject, target)
    return trial, next(iter(trial.judgement.violations), None)
