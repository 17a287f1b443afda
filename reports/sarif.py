"""A report as SARIF 2.1.0, which code scanning reads (OASIS, https://docs.oasis-open.org/sarif).

A rule per oracle, a result per finding. What is settled is suppressed, with the reason. The
location of a result is the first line of its reproducer.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aliasproof.oracles.judge import ORACLES
from aliasproof.reports.console import relative
from aliasproof.reports.run_report import ReportedFinding, RunReport

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# What no oracle of `Program` says, but one of Python programs does.
_STRUCTURE = "what a program leaves has the same parts, of the same types"


def sarif(report: RunReport) -> dict[str, Any]:
    """The file as JSON values."""
    oracles = list(dict.fromkeys(finding.violation.oracle for finding in report.findings))
    driver = {"name": "aliasproof", "version": _version(), "rules": list(map(_rule, oracles))}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"aliasproof/{report.name}/"},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, oracles) for finding in report.findings],
        "properties": {"torch": list(report.torches), "programs": dict(report.programs)},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _version() -> str:
    try:
        return version("aliasproof")
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        return "0"


def _rule(oracle: str) -> dict[str, object]:
    promises = {each.name: each.promise for each in ORACLES}
    promise = promises.get(oracle, _STRUCTURE)
    return {
        "id": f"aliasproof/{oracle}",
        "name": oracle.capitalize(),
        "shortDescription": {"text": f"The oracle {oracle}: {promise}"},
        "fullDescription": {"text": f"A compiled program breaks what eager promises: {promise}."},
        "defaultConfiguration": {"level": "error"},
        "help": {"text": "Run the reproducer. It needs torch alone, and exits 1 while it shows."},
    }


def _result(finding: ReportedFinding, oracles: list[str]) -> dict[str, object]:
    oracle = finding.violation.oracle
    result: dict[str, object] = {
        "ruleId": f"aliasproof/{oracle}",
        "ruleIndex": oracles.index(oracle),
        "kind": "fail",
        "level": "note" if finding.settled else "error" if finding.silent else "warning",
        "message": {"text": _message(finding)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(finding)},
                    "region": {"startLine": 1},
                }
            }
        ],
        "partialFingerprints": {"aliasproof/v1": finding.identifier},
        "properties": {
            "target": finding.target,
            "first wrong after": finding.blamed,
            "place": finding.violation.place,
            "silent": finding.silent,
            "state": finding.state,
            "violations": finding.times,
        },
    }
    if finding.settled:
        known = f": {finding.known.title}" if finding.known is not None else ""
        reason = f"{finding.state}{known}"
        result["suppressions"] = [{"kind": "external", "justification": reason}]
    return result


def _message(finding: ReportedFinding) -> str:
    after = f" First wrong after {finding.blamed}." if finding.blamed else ""
    return f"{finding.title}.{after}"


def _uri(finding: ReportedFinding) -> str:
    """The reproducer: relative to the working directory if it is below it."""
    path = relative(Path(finding.folder) / "reproducer.py")
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
