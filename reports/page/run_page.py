"""`run_page`: a report as one HTML file.

The page has a table of findings, which a script fills from a block of JSON: rows are created when
they are scrolled into view. The details of findings are HTML that Jinja made, with escaped texts,
compressed in chunks of several findings, and unpacked when a finding is opened. So a page of 10,000
findings opens immediately. A policy in its head forbids all other scripts and all requests.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from aliasproof.campaigns.store.run_view import Moment
from aliasproof.campaigns.store.store_schema import DAMAGE
from aliasproof.ir.errors import UserError
from aliasproof.reports.console import clock, counted, shortened
from aliasproof.reports.run_report import ReportedFinding, RunReport, is_web_address
from aliasproof.reports.storage_strips import SharedByte, Strip, ViewRow, coverage

# --- further tables -------------------------------------------------------------------------------
#
# The kill matrix and the coverage of ops, from the output of `faults --json` and `stats --json`.


@dataclass(frozen=True, slots=True)
class TableOfPage:
    """A table with a title above it and a sentence below it. The first column names the rows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str


def by_target(report: RunReport) -> TableOfPage | None:
    """The verdicts of each target of a run on each finding's program; None with only one target.

    It has only the findings that ran again.
    """
    again = [(it, it.second.others) for it in report.findings if it.second and it.second.others]
    asked = (name for finding, words in again for name in (finding.target, *words))
    names = dict.fromkeys((*report.programs, *asked))
    targets = tuple(name for name in names if any(name in (it.target, *by) for it, by in again))
    if not again or len(targets) < 2:
        return None
    rows = tuple(
        (
            finding.identifier,
            *(
                "found here" if name == finding.target else shortened(words.get(name, ""), 120)
                for name in targets
            ),
        )
        for finding, words in again
    )
    caption = (
        "Each program that was reduced for one target, compiled by all targets of the run. 'limit'"
        " is a difference from eager that the target documents."
    )
    title = "The same programs through all targets"
    return TableOfPage(title, ("finding", *targets), rows, caption)


def kill_matrix(data: Mapping[str, Any]) -> TableOfPage:
    """A row per planted fault, a column per oracle. Raises `UserError` for other JSON."""
    try:
        oracles = [str(name) for name in data["only killer of"]]
        rows = tuple(
            (
                str(row["fault"]),
                _number(row["programs until killed"]),
                *(_number(row["by oracle"].get(oracle)) for oracle in oracles),
            )
            for row in data["faults"]
        )
        killed, survivors = int(data["killed"]), [str(name) for name in data["survivors"]]
    except DAMAGE as reason:
        raise _other_json("--faults", "aliasproof faults --json", reason) from None
    survive = f"; not killed: {', '.join(survivors)}" if survivors else ""
    caption = (
        f"Killed: {killed} of {counted(len(rows), 'planted fault')}{survive}. A number is that of"
        " the first program on which the oracle reports a violation."
    )
    return TableOfPage("Kill matrix", ("fault", "killed", *oracles), rows, caption)


def op_coverage(data: Mapping[str, Any]) -> TableOfPage:
    """A row per group of ops. Raises `UserError` for other JSON."""
    try:
        rows, never = [], 0
        for name, group in data["groups"].items():
            counts = {str(op): int(times) for op, times in group["ops"].items()}
            missing = sorted(op for op, times in counts.items() if not times)
            never += len(missing)
            drawn = f"{len(counts) - len(missing)} of {len(counts)}"
            rows.append((str(name), drawn, str(int(group["instructions"])), ", ".join(missing)))
        programs = int(data["programs"])
    except DAMAGE as reason:
        raise _other_json("--drawn", "aliasproof stats --json", reason) from None
    caption = f"In {counted(programs, 'drawn program')}, {counted(never, 'op')} were never drawn."
    head = ("group", "ops drawn", "instructions", "never drawn")
    return TableOfPage("Coverage of ops", head, tuple(rows), caption)


def _other_json(option: str, command: str, reason: Exception) -> UserError:
    what = f"{type(reason).__name__}: {reason}"
    return UserError(f"{option}: the file is not what '{command}' writes ({what})")


def _number(value: object) -> str:
    return "" if value is None else str(int(str(value)))


_WORDS = re.compile(r"[-+]?[\w.]+(?:[eE][-+]?\d+)?|\s+|.")
MOST_WORDS = 4000  # of a text; longer ones differ as a whole


class MarkedPart(NamedTuple):
    """A part of a text, and whether it differs from the other text."""

    text: str
    differs: bool


def marked(ours: str, theirs: str) -> tuple[tuple[MarkedPart, ...], tuple[MarkedPart, ...]]:
    """Both texts in parts, with the different parts marked."""
    if ours == theirs:
        return (MarkedPart(ours, differs=False),), (MarkedPart(theirs, differs=False),)
    one, other = _WORDS.findall(ours), _WORDS.findall(theirs)
    if max(len(one), len(other)) > MOST_WORDS:
        return (MarkedPart(ours, differs=True),), (MarkedPart(theirs, differs=True),)
    if [word.isspace() for word in one] == [word.isspace() for word in other]:
        pairs = list(zip(one, other, strict=True))
        return (
            _joined(MarkedPart(mine, mine != its) for mine, its in pairs),
            _joined(MarkedPart(its, mine != its) for mine, its in pairs),
        )
    blocks = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return (
        _joined(MarkedPart("".join(one[a:b]), tag != "equal") for tag, a, b, _, _ in blocks),
        _joined(MarkedPart("".join(other[c:d]), tag != "equal") for tag, _, _, c, d in blocks),
    )


def _joined(parts: Iterable[MarkedPart]) -> tuple[MarkedPart, ...]:
    """The parts, with neighbours of one kind merged."""
    groups = itertools.groupby(parts, lambda it: it.differs)
    joined = (MarkedPart("".join(it.text for it in group), differs) for differs, group in groups)
    return tuple(part for part in joined if part.text)


WIDTH, HEIGHT = 320, 72  # of a chart
MOST_POINTS = 160


@dataclass(frozen=True, slots=True)
class Chart:
    """A line that rises from 0 to `top` in `seconds`; `points` are for an SVG polyline."""

    title: str
    points: str
    top: int
    end: str

    @property
    def label(self) -> str:
        """The line in words, for a screen reader."""
        return f"{self.title}: {self.top} after {self.end}"


def charts(moments: Sequence[Moment]) -> list[Chart]:
    """Findings and programs of a run over time; none for a run that was merged from others."""
    if len(moments) < 2:
        return []
    step = -(-len(moments) // MOST_POINTS)
    shown = [*moments[:-1:step], moments[-1]]
    lines = {
        "findings": [moment.findings for moment in shown],
        "programs with a violation": [moment.violating for moment in shown],
        "programs": [moment.programs for moment in shown],
    }
    end = shown[-1].elapsed
    made = []
    for title, values in lines.items():
        top = max(*values, 1)
        pairs = zip(shown, values, strict=True)
        shares = ((then.elapsed / max(end, 1e-9), value / top) for then, value in pairs)
        points = [(0.0, 0.0), *shares]
        text = " ".join(f"{x * WIDTH:.1f},{HEIGHT - y * (HEIGHT - 4):.1f}" for x, y in points)
        made.append(Chart(title, text, max(values), clock(end)))
    return made


# --- strip picture --------------------------------------------------------------------------------
#
# Strips of memory as pictures: the rectangles of each row, which a template writes as SVG.


MOST_TICKS = 8
MOST_CELLS = 512  # the width of a picture; for a small storage, a cell is a byte


class Bar(NamedTuple):
    """A rectangle: its left edge and width in cells; `partly` if it has gaps too small to draw."""

    left: int
    width: int
    partly: bool


class Tick(NamedTuple):
    """A labelled byte on the axis: its cell, and its position in percent of the width."""

    byte: int
    cell: float
    percent: float


def cells_of(strip: Strip) -> int:
    """The width of the picture of a strip."""
    return max(min(strip.nbytes, MOST_CELLS), 1)


def ticks_of(strip: Strip) -> list[Tick]:
    """The first byte, some at multiples of a power of two, and the end."""
    nbytes, step = strip.nbytes, 1
    while nbytes > step * MOST_TICKS:
        step *= 2
    # A label needs room before the label of the end.
    shares = (
        (byte, byte / max(nbytes, 1)) for byte in [*range(0, nbytes - step // 2, step), nbytes]
    )
    return [Tick(it, round(at * cells_of(strip), 2), round(100 * at, 2)) for it, at in shares]


def bars_of(row: ViewRow, strip: Strip) -> list[Bar]:
    """The bytes of a row of a strip."""
    bars, left = list[Bar](), 0
    covered = coverage(row.spans, strip.nbytes, cells_of(strip))
    shares = (0.0 if it == 0 else 1.0 if it > 0.999 else 0.5 for it in covered)
    for share, group in itertools.groupby(shares):
        width = len(list(group))
        bars += [Bar(left, width, share < 1)] if share else []
        left += width
    return bars


def marks_of(row: ViewRow, strip: Strip) -> list[int]:
    """The cells of the bytes that a row shares with another row of its strip."""

    def covered(shared: SharedByte) -> bool:
        in_pair = row.writes or row.name in (shared.first, shared.second)
        return in_pair and any(first <= shared.byte < end for first, end in row.spans)

    marked = (it.byte * cells_of(strip) // strip.nbytes for it in strip.shared if covered(it))
    return list(dict.fromkeys(marked))


FILES = Path(__file__).parent
PER_CHUNK = 20  # findings that are compressed together
LONGEST_CODE = 60_000  # characters of a text on the page


def run_page(report: RunReport) -> str:
    """The page. Raises `UserError` if Jinja is not installed."""
    environment = _environment()
    style, script = ((FILES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    tables = [by_target(report)]
    if report.faults is not None:
        tables.append(kill_matrix(report.faults))
    if report.drawn is not None:
        tables.append(op_coverage(report.drawn))
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


def _environment() -> Any:
    try:
        import jinja2  # noqa: PLC0415 - only the page needs it
    except ModuleNotFoundError as error:
        raise UserError("the page needs Jinja: pip install 'aliasproof[pages]'") from error
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
        "cells": cells_of,
        "ticks": ticks_of,
        "bars": bars_of,
        "marks": marks_of,
        "web_address": is_web_address,
        "shortened": shortened,
        "evidence": _evidence,
        "cut": _cut,
    }
    return environment


def _policy(*texts: str) -> str:
    """The policy that allows only these texts as style and script, and no requests."""
    style, script = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}';"
        " base-uri 'none'; form-action 'none'"
    )


def _index(report: RunReport) -> dict[str, object]:
    """The contents of the table, as JSON values: a list per finding, in the order of `columns`."""
    rows = [
        [
            finding.identifier,
            finding.state,
            shortened(" ".join(finding.violation.describe().split()), 160),
            finding.target,
            finding.wrong_part,
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
    """The details of findings, compressed and in base64: per chunk, a JSON list of HTML."""
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
    """The first part of a text, since a long text would make the page slow."""
    left = len(text) - LONGEST_CODE
    return text if left <= 0 else f"{text[:LONGEST_CODE]}\n… and {left} more characters"
