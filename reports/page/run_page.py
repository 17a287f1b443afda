"""`run_page`: a report as one file in HTML.

The page has a table of findings, which a script fills from a block of JSON: rows are made as they
are looked at. The details of a finding are HTML that Jinja made, with all texts escaped. They are
compressed, some findings together, and unpacked when a finding is opened. So a page of 10,000
findings opens at once. A policy in its head forbids all scripts but its own, and all requests.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from aliasproof.ir.errors import UserError
from aliasproof.reports.page import further_tables
from aliasproof.reports.page.marked_text import marked
from aliasproof.reports.page.run_charts import HEIGHT, WIDTH, charts
from aliasproof.reports.page.strip_picture import strip_picture
from aliasproof.reports.run_report import ReportedFinding, RunReport, is_web_address
from aliasproof.reports.wording import clock, counted, shortened

FILES = Path(__file__).parent
PER_CHUNK = 20  # findings that are compressed together
LONGEST_CODE = 60_000  # characters of a text on the page


def run_page(report: RunReport) -> str:
    """The page. Raises `UserError` if Jinja is not installed."""
    environment = _environment()
    style, script = (_asset(name) for name in ("page.css", "page.js"))
    tables = [further_tables.by_target(report)]
    if report.faults is not None:
        tables.append(further_tables.kill_matrix(report.faults))
    if report.drawn is not None:
        tables.append(further_tables.op_coverage(report.drawn))
    text: str = environment.get_template("page.html").render(
        report=report,
        style=style,
        script=script,
        policy=_policy(style, script),
        index=_index(report),
        chunks=list(_chunks(environment, report.findings)),
        charts=charts(report.moments),
        further=[table for table in tables if table is not None],
        found=(found := Counter(finding.target for finding in report.confirmed)),
        targets=list(dict.fromkeys((*report.programs, *found))),
    )
    return text


def _jinja() -> ModuleType:
    try:
        import jinja2  # noqa: PLC0415 - only the page needs it
    except ModuleNotFoundError as error:
        raise UserError("the page needs Jinja: pip install 'aliasproof[pages]'") from error
    return jinja2


def _environment() -> Any:
    jinja2 = _jinja()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FILES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"chart_size": (WIDTH, HEIGHT)}
    environment.filters |= {
        "clock": clock,
        "counted": counted,
        "marked_rows": lambda rows: [(place, *marked(one, other)) for place, one, other in rows],
        "pictures": lambda strips: [strip_picture(it) for it in strips if it.aliased],
        "single": lambda strips: [it for it in strips if not it.aliased],
        "web_address": is_web_address,
        "shortened": shortened,
        "evidence": _evidence,
        "cut": _cut,
    }
    return environment


@functools.cache
def _asset(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def _policy(*texts: str) -> str:
    """The policy that allows these texts as style and script, and nothing else at all."""
    style, script = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}';"
        " base-uri 'none'; form-action 'none'"
    )


def _index(report: RunReport) -> dict[str, object]:
    """What the table shows, as JSON values: a list per finding, in the order of `columns`."""
    rows = [
        [
            finding.identifier,
            finding.state,
            shortened(" ".join(finding.violation.describe().split()), 160),
            finding.target,
            finding.blamed,
            finding.violation.oracle,
            finding.size,
            finding.times,
            finding.known.identifier if finding.known is not None else "",
            int(finding.silent),
            int(not finding.settled),
        ]
        for finding in report.findings
    ]
    columns = (
        *("id", "state", "what", "target", "pass", "oracle", "size", "times", "known"),
        *("silent", "open"),
    )
    return {"columns": columns, "rows": rows, "perChunk": PER_CHUNK}


def _chunks(environment: Any, findings: Sequence[ReportedFinding]) -> Iterator[str]:
    """The details of findings, compressed and in base64: of each, a JSON list of HTML."""
    template = environment.get_template("finding.html")
    for start in range(0, len(findings), PER_CHUNK):
        chunk = enumerate(findings[start : start + PER_CHUNK], start)
        texts = [template.render(finding=finding, number=number) for number, finding in chunk]
        yield base64.b64encode(zlib.compress(json.dumps(texts).encode(), 6)).decode()


def _evidence(finding: ReportedFinding) -> list[tuple[str, str]]:
    """The evidence of the violation, as texts."""
    evidence = finding.violation.evidence
    return [
        (key, value if isinstance(value, str) else json.dumps(value, default=str))
        for key, value in evidence.items()
    ]


def _cut(text: str) -> str:
    """A text without what would make the page slow."""
    left = len(text) - LONGEST_CODE
    return text if left <= 0 else f"{text[:LONGEST_CODE]}\n… and {left} more characters"
