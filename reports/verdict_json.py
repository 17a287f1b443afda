"""The outcome of a check as JSON values: all of it. What is printed fits a screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from aliasproof.oracles.check_result import Check, EagerResult
from aliasproof.oracles.verdict import Report, Verdict, Violation


def check_json(check: Check, bugs: Mapping[str, str]) -> dict[str, object]:
    """The outcome of a check as JSON values, with the known bugs of rows."""
    return {
        "torch": check.eager.torch,
        "notes": list(check.notes),
        "eager": _eager_json(check.eager),
        "targets": {
            name: {
                "oracles": {
                    oracle: report_json(report) for oracle, report in result.reports.items()
                },
                "verdict": result.verdict.value,
                "judged": result.judged,
                "violated": result.violated,
                "first wrong after": result.blamed or None,
                "known bug": bugs.get(name),
                "missed": None if result.missed is None else list(map(asdict, result.missed)),
            }
            for name, result in check.results.items()
        },
        "violated": check.violated,
        "judged": any(result.judged for result in check.results.values()),
    }


def _eager_json(eager: EagerResult) -> dict[str, object]:
    return {
        "judged": eager.unjudged is None,
        "reason": eager.unjudged or "",
        "unspecified": eager.unspecified,
        "raises": eager.raised,
        "names": dict(eager.names),
        "outputs": list(eager.outputs),
        "inputs afterwards": list(eager.inputs),
        "compared with tolerance since": eager.rounded,
    }


def report_json(report: Report) -> dict[str, object]:
    """The report of an oracle as JSON values."""
    return {
        "verdict": report.verdict.value,
        "judged": report.verdict not in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE),
        "reason": report.reason,
        "violations": list(map(_violation_json, report.violations)),
        "documented": [
            _violation_json(documented.difference) | {"limitation": asdict(documented.limitation)}
            for documented in report.documented
        ],
        "notes": list(map(_violation_json, report.notes)),
        "suspected": list(map(_violation_json, report.suspected)),
        "not yours": list(map(_violation_json, report.inherited)),
        "evidence": [dict(difference.evidence) for difference in report.differences],
    }


def _violation_json(violation: Violation) -> dict[str, object]:
    return {
        "kind": violation.kind,
        "place": violation.place,
        "label": violation.label,
        "evidence": dict(violation.evidence),
    }
