"""A report for GitHub Actions: annotations, and Markdown for the summary of a step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from aliasproof.reports.console import relative
from aliasproof.reports.run_report import ReportedFinding, RunReport
from aliasproof.reports.wording import counted, shortened

MOST_ANNOTATIONS = 10  # of a kind; GitHub shows no more of a step
MOST_BYTES = 1_000_000  # of a summary; GitHub refuses one that is larger than a MiB


def workflow_commands(report: RunReport) -> Iterator[str]:
    """The commands that annotate the reproducers: errors for silent findings, else warnings."""
    kinds = {"error": True, "warning": False}
    for kind, silent in kinds.items():
        findings = [finding for finding in report.unsettled if finding.silent is silent]
        for finding in findings[:MOST_ANNOTATIONS]:
            file = relative(Path(finding.folder) / "reproducer.py")
            title = f"aliasproof: {finding.identifier}"
            text = f"{finding.title}\n{finding.source}"
            yield f"::{kind} file={_value(str(file))},line=1,title={_value(title)}::{_text(text)}"
        if len(findings) > MOST_ANNOTATIONS:
            rest = len(findings) - MOST_ANNOTATIONS
            yield f"::notice title=aliasproof::{counted(rest, 'finding')} more: see the summary"


def step_summary(
    report: RunReport,
    findings: Sequence[ReportedFinding],
    which: str,
    notes: Sequence[str] = (),
) -> str:
    """These findings with their issues, then counts and known bugs.

    `which` names them with their number: 'new finding'.
    """
    count, size = len(findings), 0
    lines = [f"## {counted(count, which)}, torch {', '.join(report.torches)}", ""]
    for number, finding in enumerate(findings):
        text = _finding(finding)
        size += len(text.encode())
        if size > MOST_BYTES * 0.8:
            lines += [f"{counted(count - number, 'finding')} more: see the page of the run.", ""]
            break
        lines.append(text)
    if report.programs:
        lines += ["| target | programs | with a violation |", "|---|---|---|"]
        lines += [
            f"| {name} | {programs} | {report.violating.get(name, 0)} |"
            for name, programs in report.programs.items()
        ]
        lines.append("")
    states = Counter(finding.state for finding in report.findings)
    each = ", ".join(f"{number} {state}" for state, number in states.most_common())
    waiting = len(report.findings) - len(report.confirmed)
    rest = f", {waiting} not confirmed" if waiting else ""
    lines.append(f"{counted(len(report.confirmed), 'finding')} in all{rest}{each and ': '}{each}.")
    lines += [f"- mistake of aliasproof: {_in_a_cell(text)}" for text in notes]
    if report.known:
        lines += ["", "| known bug | violations | issue |", "|---|---|---|"]
        lines += [
            f"| {bug.identifier}: {_in_a_cell(bug.title)} | {times} | {bug.link or 'none found'} |"
            for bug, times in report.known
        ]
    return "\n".join(lines) + "\n"


def _finding(finding: ReportedFinding) -> str:
    """A finding, with the text of its issue where it can be copied."""
    kind = shortened(_in_a_cell(finding.violation.kind), 300)
    about = f"`{finding.identifier}`: {finding.target} {finding.violation.oracle}, {kind}"
    body = finding.issue or finding.script
    if not body:
        return f"### {about}\n"
    # Longer than any fence in the text.
    fence = "`" * (1 + max(map(len, re.findall(r"`{3,}", body)), default=3))
    head = "<details><summary>issue</summary>"
    return f"### {about}\n\n{head}\n\n{fence}\n{body.rstrip()}\n{fence}\n\n</details>\n"


def _in_a_cell(text: str) -> str:
    """In one line, without what ends a cell of a table or begins a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _text(text: str) -> str:
    """A text as the message of a workflow command (`@actions/core`, `escapeData`)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: str) -> str:
    """A text as a property of a workflow command (`escapeProperty`)."""
    return _text(text).replace(":", "%3A").replace(",", "%2C")
