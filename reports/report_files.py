"""The files of a report: a page, JUnit XML, SARIF, a summary in Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from aliasproof.reports.github_summary import step_summary
from aliasproof.reports.junit_xml import junit_xml
from aliasproof.reports.page.run_page import run_page
from aliasproof.reports.run_report import RunReport
from aliasproof.reports.sarif import sarif


def _sarif_text(report: RunReport) -> str:
    return json.dumps(sarif(report), indent=1) + "\n"


def _json_text(report: RunReport) -> str:
    return json.dumps(report.to_json(), indent=1, default=str) + "\n"


def _summary(report: RunReport) -> str:
    return step_summary(report, report.unsettled, "unsettled finding")


# By format: the name of the file, and its text.
FILES: Mapping[str, tuple[str, Callable[[RunReport], str]]] = {
    "html": ("report.html", run_page),
    "junit": ("junit.xml", junit_xml),
    "sarif": ("aliasproof.sarif", _sarif_text),
    "github": ("summary.md", _summary),
    "json": ("report.json", _json_text),
}
NAMES = frozenset(name for name, _ in FILES.values())


def file_of(form: str, report: RunReport) -> tuple[str, str]:
    """The name and the text of a report in one of the formats."""
    name, text = FILES[form]
    return name, text(report)
