"""`Verdict`, `Violation`, `Signature`: what an oracle says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Verdict(Enum):
    """What an oracle found.

    A thing not proved is never called wrong, a thing not checked is never called right.
    """

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise broken, with evidence.

    `kind` is the same for all violations that a reader would call the same symptom, such as 'wrong
    value' or 'raises IndexError: index # is out of bounds'; `place` says which input or output;
    `evidence` holds plain JSON values.
    """

    oracle: str
    kind: str
    place: str
    evidence: Mapping[str, object] = field(default_factory=dict, compare=False)

    @property
    def silent(self) -> bool:
        """True if the target did not even raise."""
        return self.oracle != "errors"

    def describe(self) -> str:
        """One line for people."""
        return f"{self.kind} ({self.place})"


@dataclass(frozen=True, slots=True)
class Report:
    """What one oracle says of one run: a verdict, the violations if any, and a reason where it could not decide."""

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
