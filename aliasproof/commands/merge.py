"""The command `merge`: joins runs, and prints the outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from aliasproof.commands.options import Json, KnownToo, argument, flag, option
from aliasproof.ir.stored_text import writing
from aliasproof.reports.console import results, write_json

Folder = Annotated[Path, argument("DIR", "Folder of the joined run.")]
Runs = Annotated[list[Path], argument("RUN...", "Folders of runs.")]
Page = Annotated[
    Path | None,
    option(
        "FILE", "Write what is stored as a page in HTML. 'report' runs the findings again for it."
    ),
]
Summary = Annotated[
    Path | None,
    option("FILE", "Write new findings, with their issues, in Markdown."),
]
FailOnNew = Annotated[
    bool,
    flag(
        "--fail-on-new",
        "Exit with status 1 if there is a finding that DIR did not have, and that is no known bug.",
    ),
]


def merge(
    folder: Folder,
    runs: Runs,
    page: Page = None,
    summary: Summary = None,
    fail_on_new: FailOnNew = False,
    json: Json = False,
    known: KnownToo = False,
) -> int:
    """Join runs by signature, such as the shares of 'fuzz --shard I/N', and print the outcome.

    What is in several runs counts once, so a run can be joined again.
    """
    from aliasproof.campaigns.run import merging
    from aliasproof.findings import reporting
    from aliasproof.judge.trial import quiet_torch
    from aliasproof.reports.campaign_outcome import print_outcome
    from aliasproof.reports.page.run_page import run_page
    from aliasproof.reports.report_files import step_summary

    quiet_torch()
    before = {path.name for path in folder.glob("findings/*/")}
    campaign = merging.merge(folder, runs)
    unknown = {name for name, finding in campaign.findings.items() if not finding.known}
    new = unknown - before
    if page is not None or summary is not None:
        report = reporting.report(str(folder), 0.0)  # nothing runs again
        if page is not None:
            with writing(page):
                page.write_text(run_page(report), encoding="utf-8")
        if summary is not None:
            found = [finding for finding in report.findings if finding.identifier in new]
            text = step_summary(report, found, "new finding", campaign.mistakes)
            with writing(summary):
                summary.write_text(text, encoding="utf-8")
    if json:
        write_json(campaign.to_json() | {"new": sorted(new)})
    else:
        print_outcome(results(), campaign, everything=known)
    return int(bool(new) and fail_on_new)
