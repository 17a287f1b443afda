"""`Verdict`, `Violation`, `Limitation` and `Report`: the answer of an oracle."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias


class Verdict(Enum):
    """The answer of an oracle.

    A target is wrong only if that is proved, and correct only if that was checked.
    `DOCUMENTED` is a difference from eager that the target's documentation states.
    """

    HOLDS = "holds"
    VIOLATED = "violated"
    DOCUMENTED = "documented"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not applicable"

    @property
    def word(self) -> str:
        """The verdict as tables show it, short: one column per oracle must fit in a terminal."""
        return _WORDS.get(self, self.value)


_WORDS = {
    Verdict.NOT_APPLICABLE: "n/a",
    Verdict.VIOLATED: "wrong",
    Verdict.DOCUMENTED: "limit",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A difference from eager, with evidence. The contract decides whether it breaks a promise.

    `kind` names the symptom, such as 'wrong value' or 'raises IndexError: index # is out of
    bounds': violations that a reader would call the same symptom have the same kind. `place` is
    the input or output, or the stage and node. `evidence` has plain JSON values. `label` is
    "disputed" if maintainers doubt that it is a bug; the evidence then has their reason.
    """

    oracle: str
    kind: str
    place: str
    evidence: Mapping[str, object] = field(default_factory=dict, compare=False)
    label: str = field(default="", compare=False)

    @property
    def silent(self) -> bool:
        """Whether the target gave a wrong result and raised nothing."""
        return self.oracle != "errors"

    def describe(self) -> str:
        """One line for people."""
        return f"{self.kind} ({self.place})"


@dataclass(frozen=True, slots=True)
class Limitation:
    """Why a difference breaks no promise: a clause of a contract, and a reason with its source."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Documented:
    """A difference from eager that a limitation covers. It is reported and counted separately."""

    difference: Violation
    limitation: Limitation


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one oracle on one run; `reason` says why it could not decide.

    `violations` break the contract, `documented` differences do not. `notes` are differences that
    only graphs show; no result depends on them, and the target does not promise to avoid them.
    `suspected` would be violations if some values showed them; none did. `inherited` are caused
    by a layer upstream of the user's code.
    """

    verdict: Verdict
    violations: tuple[Violation, ...] = ()
    reason: str = ""
    documented: tuple[Documented, ...] = ()
    notes: tuple[Violation, ...] = ()
    suspected: tuple[Violation, ...] = ()
    inherited: tuple[Violation, ...] = ()

    @property
    def differences(self) -> tuple[Violation, ...]:
        """All differences of results, violations first."""
        return (*self.violations, *(documented.difference for documented in self.documented))


class Reported:
    """A result with the report of each oracle, by the oracle's name."""

    __slots__ = ()
    reports: Mapping[str, Report]

    @property
    def violations(self) -> list[Violation]:
        """All violations, the main one first."""
        return [violation for report in self.reports.values() for violation in report.violations]

    @property
    def documented(self) -> list[Documented]:
        """All differences from eager that the target documents, the main one first."""
        return [documented for report in self.reports.values() for documented in report.documented]


HOLDS = Report(Verdict.HOLDS)


def not_applicable(reason: str) -> Report:
    """The oracle has nothing to decide here."""
    return Report(Verdict.NOT_APPLICABLE, reason=reason)


def report_of(violations: Sequence[Violation]) -> Report:
    """Violated if there is a violation, else holds."""
    return Report(Verdict.VIOLATED, tuple(violations)) if violations else HOLDS


def with_differences(
    violations: Sequence[Violation],
    documented: Sequence[Documented],
    notes: Sequence[Violation],
    otherwise: Report = HOLDS,
) -> Report:
    """The report on these differences; `otherwise` if none of them is in results."""
    report = replace(
        otherwise,
        violations=tuple(violations),
        documented=tuple(documented),
        notes=tuple(notes),
    )
    if violations:
        return replace(report, verdict=Verdict.VIOLATED)
    return replace(report, verdict=Verdict.DOCUMENTED) if documented else report


def in_both(one: Report, other: Report) -> Report:
    """The first report, limited to the differences that both have: others are flaky."""
    # Differences are equal if oracle, kind and place are: the evidence may differ in values.
    seen = other.differences
    violations = [violation for violation in one.violations if violation in seen]
    documented = [entry for entry in one.documented if entry.difference in seen]
    lost = next((difference for difference in one.differences if difference not in seen), None)
    if lost is None:
        return one
    reason = f"seen in one run, but not in a second run: {lost.describe()}"
    otherwise = Report(Verdict.UNKNOWN, reason=reason)
    return with_differences(violations, documented, one.notes, otherwise)


# The worst first: one violation decides, and one unknown stage leaves the whole undecided.
FROM_WORST = (
    Verdict.VIOLATED,
    Verdict.DOCUMENTED,
    Verdict.UNKNOWN,
    Verdict.HOLDS,
    Verdict.NOT_APPLICABLE,
)


def of_all_stages(reports: Sequence[Report]) -> Report:
    """One report for all stages: the worst verdict, its first reason, and all differences."""
    if not reports:
        return not_applicable("the target shows no graph")
    worst = min((report.verdict for report in reports), key=FROM_WORST.index)
    # Reasons for better verdicts would explain nothing.
    reasons = (report.reason for report in reports if report.verdict is worst and report.reason)
    return Report(
        worst,
        tuple(violation for report in reports for violation in report.violations),
        next(reasons, ""),
        tuple(documented for report in reports for documented in report.documented),
        tuple(note for report in reports for note in report.notes),
    )


ON_VALUES = ("values", "inputs")  # a wrong element is in an output, in an input, or in both


def same_promise(one: Violation, other: Violation) -> bool:
    """Whether two violations concern the same promise, so that they can have one cause."""
    if one.oracle in ON_VALUES and other.oracle in ON_VALUES:
        return True
    return (one.oracle, one.kind) == (other.oracle, other.kind)


# --- names of inputs and outputs, as a user's function calls them, in place of their indices ------

# The user's name of each place, such as "input 'cache.k'" for 'input 0'.
PlaceNames: TypeAlias = Mapping[str, str]

_PLACE = re.compile(r"\b(?:input|output) \d+\b")
# An element of an input in a symbolic value: 'x0[1]', and 'x0' if the input has no dim.
_ELEMENT = re.compile(r"\bx(\d+)\b")


def rename_places(text: str, names: PlaceNames) -> str:
    """A text with names in place of indices."""
    return _PLACE.sub(lambda place: names.get(place[0], place[0]), text) if names else text


def rename_report(report: Report, names: PlaceNames) -> Report:
    """A report with names in place of indices."""
    if not names:
        return report
    return replace(
        report,
        reason=rename_places(report.reason, names),
        violations=tuple(_violation(violation, names) for violation in report.violations),
        documented=tuple(
            Documented(_violation(documented.difference, names), documented.limitation)
            for documented in report.documented
        ),
        notes=tuple(_violation(note, names) for note in report.notes),
        suspected=tuple(_violation(violation, names) for violation in report.suspected),
        inherited=tuple(_violation(violation, names) for violation in report.inherited),
    )


def _violation(violation: Violation, names: PlaceNames) -> Violation:
    symbolic = violation.oracle == "equivalence"
    evidence = {
        key: _evidence(value, names, symbolic=symbolic) if isinstance(value, str) else value
        for key, value in violation.evidence.items()
    }
    return replace(violation, place=rename_places(violation.place, names), evidence=evidence)


def _evidence(text: str, names: PlaceNames, *, symbolic: bool) -> str:
    if symbolic:
        text = _ELEMENT.sub(lambda match: _tensor(match, names), text)
    return rename_places(text, names)


def _tensor(match: re.Match[str], names: PlaceNames) -> str:
    """An input as an expression in the user's code, such as 'cache.k'."""
    name = names.get(f"input {match[1]}")
    return match[0] if name is None else name.removeprefix("input '").removesuffix("'")
