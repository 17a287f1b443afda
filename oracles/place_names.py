"""Names of inputs and outputs, as a user's function calls them, in place of their indices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from aliasproof.oracles.verdict import Documented, Report, Violation

# The name of each place, such as "input 'cache.k'" for 'input 0'.
PlaceNames: TypeAlias = Mapping[str, str]

_PLACE = re.compile(r"\b(?:input|output) \d+\b")
# An element of an input in a symbolic value: 'x0[1]', and 'x0' if the input has no dim.
_ELEMENT = re.compile(r"\bx(\d+)\b")


def renamed(text: str, names: PlaceNames) -> str:
    """A text with names in place of indices."""
    return _PLACE.sub(lambda place: names.get(place[0], place[0]), text) if names else text


def renamed_report(report: Report, names: PlaceNames) -> Report:
    """A report with names in place of indices."""
    if not names:
        return report
    return replace(
        report,
        reason=renamed(report.reason, names),
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
    return replace(violation, place=renamed(violation.place, names), evidence=evidence)


def _evidence(text: str, names: PlaceNames, *, symbolic: bool) -> str:
    if symbolic:
        text = _ELEMENT.sub(lambda match: _tensor(match, names), text)
    return renamed(text, names)


def _tensor(match: re.Match[str], names: PlaceNames) -> str:
    """An input as an expression of the user, such as 'cache.k'."""
    name = names.get(f"input {match[1]}")
    return match[0] if name is None else name.removeprefix("input '").removesuffix("'")
