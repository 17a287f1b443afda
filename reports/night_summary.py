"""The outcome of a night for people: a page in HTML, and a summary in Markdown for a CI."""

from __future__ import annotations

import io
import re
from collections.abc import Collection

import torch
from rich.console import Console

from aliasproof.campaigns.run.campaign import Campaign, findings_in_order, known_in_order
from aliasproof.campaigns.store.finding import Finding
from aliasproof.reports.campaign_outcome import print_outcome
from aliasproof.reports.wording import counted

PAGE_WIDTH = 140  # columns


def page(campaign: Campaign) -> str:
    """What the command prints, as a page."""
    options = {"highlight": False, "emoji": False, "markup": False}
    nowhere = io.StringIO()
    console = Console(record=True, file=nowhere, width=PAGE_WIDTH, force_terminal=True, **options)  # type: ignore[arg-type]
    print_outcome(console, campaign)
    return console.export_html()


def summary(campaign: Campaign, new: Collection[str]) -> str:
    """New findings with their issues, then counts and known bugs. `new` are identifiers."""
    findings = [finding for finding in findings_in_order(campaign) if finding.identifier in new]
    lines = [f"## {counted(len(findings), 'new finding')}, torch {torch.__version__}", ""]
    for finding in findings:
        lines += _finding(campaign, finding)
    lines += ["| target | programs | with a violation |", "|---|---|---|"]
    for name, counts in campaign.statistics.items():
        lines.append(f"| {name} | {counts.programs} | {counts.violating} |")
    total = len(campaign.findings)
    lines += ["", f"{counted(total, 'finding')} in all, {len(campaign.unconfirmed)} unconfirmed."]
    lines += [f"- mistake of aliasproof: {_in_a_cell(text)}" for text in campaign.mistakes]
    known = known_in_order(campaign)
    if known:
        lines += ["", "| known bug | violations | issue |", "|---|---|---|"]
        lines += [
            f"| {bug.identifier}: {_in_a_cell(bug.title)} | {count} | {bug.link or 'none found'} |"
            for bug, count in known
        ]
    return "\n".join(lines) + "\n"


def _finding(campaign: Campaign, finding: Finding) -> list[str]:
    """A finding, with the text of its issue where it can be copied."""
    folder = campaign.path(finding)
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
