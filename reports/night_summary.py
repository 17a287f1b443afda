"""The outcome of a night for people: a page in HTML, and a summary in Markdown for a CI."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import torch
from rich.console import Console

from aliasproof.campaigns.run.campaign import Campaign, findings_in_order, known_in_order
from aliasproof.campaigns.run.python_hunt import PythonHunt
from aliasproof.campaigns.store.finding import Finding
from aliasproof.campaigns.store.python_finding import PythonFinding
from aliasproof.corpus.known_bugs import KNOWN_BUGS
from aliasproof.corpus.python_bugs import python_bugs
from aliasproof.reports.campaign_outcome import print_outcome
from aliasproof.reports.hunt_report import print_hunt
from aliasproof.reports.wording import counted

PAGE_WIDTH = 140  # columns


def print_campaign(console: Console, campaign: Campaign | PythonHunt) -> None:
    """Print the outcome of a campaign in either language."""
    if isinstance(campaign, PythonHunt):
        print_hunt(console, campaign)
    else:
        print_outcome(console, campaign)


def page(campaign: Campaign | PythonHunt) -> str:
    """What the command prints, as a page."""
    options = {"highlight": False, "emoji": False, "markup": False}
    nowhere = io.StringIO()
    console = Console(record=True, file=nowhere, width=PAGE_WIDTH, force_terminal=True, **options)  # type: ignore[arg-type]
    print_campaign(console, campaign)
    return console.export_html()


def summary(campaign: Campaign | PythonHunt, new: Collection[str]) -> str:
    """New findings with their issues, then counts and known bugs. `new` are identifiers."""
    if isinstance(campaign, PythonHunt):
        listed: list[tuple[Finding | PythonFinding, Path]] = [
            (finding, campaign.path(finding)) for finding in campaign.in_order()
        ]
        counts = [(campaign.target, campaign.outcomes.total(), campaign.outcomes["violated"])]
        notes, known = campaign.notes, _known_to_hunt(campaign)
    else:
        listed = [(finding, campaign.path(finding)) for finding in findings_in_order(campaign)]
        notes, known = campaign.mistakes, _known(campaign)
        counts = [(name, it.programs, it.violating) for name, it in campaign.statistics.items()]
    findings = [(finding, folder) for finding, folder in listed if finding.identifier in new]
    lines = [f"## {counted(len(findings), 'new finding')}, torch {torch.__version__}", ""]
    for finding, folder in findings:
        lines += _finding(folder, finding)
    lines += ["| target | programs | with a violation |", "|---|---|---|"]
    lines += [f"| {name} | {programs} | {violating} |" for name, programs, violating in counts]
    total = len(campaign.findings)
    lines += ["", f"{counted(total, 'finding')} in all, {len(campaign.unconfirmed)} unconfirmed."]
    lines += [f"- mistake of aliasproof: {_in_a_cell(text)}" for text in notes]
    if known:
        lines += ["", "| known bug | violations | issue |", "|---|---|---|", *known]
    return "\n".join(lines) + "\n"


def _known(campaign: Campaign) -> list[str]:
    return [
        f"| {bug.identifier}: {_in_a_cell(bug.title)} | {count} | {bug.link or 'none found'} |"
        for bug, count in known_in_order(campaign)
    ]


def _known_to_hunt(hunt: PythonHunt) -> list[str]:
    about = {bug.identifier: (bug.title, bug.link) for bug in python_bugs()}
    about |= {name: (bug.title, bug.link) for name, bug in KNOWN_BUGS.items()}
    hit = Counter(finding.known for finding in hunt.findings.values() if finding.known in about)
    return [
        f"| {name}: {_in_a_cell(about[name][0])} | {count} | {about[name][1] or 'none found'} |"
        for name, count in hit.most_common()
    ]


def _finding(folder: Path, finding: Finding | PythonFinding) -> list[str]:
    """A finding, with the text of its issue where it can be copied."""
    text = next(
        (path for path in (folder / "issue.md", folder / "reproducer.py") if path.is_file()), None
    )
    about = f"`{finding.identifier}`: {finding.target} {finding.oracle}, {_in_a_cell(finding.kind)}"
    lines = [f"### {about}", ""]
    if text is not None:
        body = text.read_text(encoding="utf-8")
        # Longer than any fence in the text.
        fence = "`" * (1 + max(map(len, re.findall(r"`{3,}", body)), default=3))
        lines += [
            "<details><summary>issue</summary>",
            "",
            fence,
            body.rstrip(),
            fence,
            "",
            "</details>",
            "",
        ]
    return lines


def _in_a_cell(text: str) -> str:
    """In one line, without what ends a cell of a table or begins a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
