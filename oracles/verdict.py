"""`Verdict`, `Violation` and `Report`: the answer of an oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Verdict(Enum):
    """What an oracle found.

    What is not proved is never called wrong, and what is not checked is never called right.
    """

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise, with evidence.

    `kind` names the symptom, such as 'wrong value' or 'raises IndexError: index # is out of
    bounds': violations that a reader would call the same symptom have the same kind. `place` names
    the input or output, or the stage and node. `evidence` has plain JSON values.
    """

    oracle: str
    kind: str
    place: str
    evidence: Mapping[str, object] = field(default_factory=dict, compare=False)

    @property
    def silent(self) -> bool:
        """Whether the target gave a wrong result and raised nothing."""
        return self.oracle != "errors"

    def describe(self) -> str:
        """One line for people."""
        return f"{self.kind} ({self.place})"


@dataclass(frozen=True, slots=True)
class Report:
    """What one oracle says about one run; `reason` says why it could not decide."""

    verdict: Verdict
    violations: tuple[Violation, ...] = ()
    reason: str = ""


HOLDS = Report(Verdict.HOLDS)


def not_applicable(reason: str) -> Report:
    """The oracle has nothing to decide here."""
    return Report(Verdict.NOT_APPLICABLE, reason=reason)


def decided(violations: list[Violation]) -> Report:
    """Violated if there is a violation, else holds."""
    return Report(Verdict.VIOLATED, tuple(violations)) if violations else HOLDS


_FROM_WORST = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.HOLDS, Verdict.NOT_APPLICABLE)


def of_all_stages(reports: Sequence[Report]) -> Report:
    """One report for all stages: the worst verdict, its first reason, and all violations."""
    if not reports:
        return not_applicable("the target shows no graph")
    # One violation decides. One unknown stage leaves the whole undecided.
    worst = min((report.verdict for report in reports), key=_FROM_WORST.index)
    # Reasons of better verdicts would explain nothing.
    reasons = (report.reason for report in reports if report.verdict is worst and report.reason)
    violations = tuple(violation for report in reports for violation in report.violations)
    return Report(worst, violations, next(reasons, ""))
