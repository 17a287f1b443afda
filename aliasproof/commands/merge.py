"""The command `merge`: joins runs, and prints the outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aliasproof.options import Json
from aliasproof.programs.errors import UserError
from aliasproof.reports.console import results, write_json

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the joined run.")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")]
Page = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the outcome as a page in HTML.")
]
Summary = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write new findings, with their issues, in Markdown."),
]
FailOnNew = Annotated[
    bool,
    typer.Option(
        "--fail-on-new",
        help="Exit with status 1 if there is a finding that DIR did not have, and that is no"
        " known bug.",
    ),
]


def merge(
    folder: Folder,
    runs: Runs,
    page: Page = None,
    summary: Summary = None,
    fail_on_new: FailOnNew = False,
    json: Json = False,
) -> int:
    """Join runs by signature, such as the shares of 'fuzz --shard I/N', and print the outcome.

    What is in several runs counts once, so a run can be joined again.
    """
    from aliasproof.campaigns.run import merging
    from aliasproof.reports import night_summary
    from aliasproof.trials.worker import quiet_torch

    quiet_torch()
    before = {path.name for path in folder.glob("findings/*/")}
    campaign = merging.merge(folder, runs)
    new = {
        name
        for name, finding in campaign.findings.items()
        if name not in before and not finding.known
    }
    if page is not None:
        _write(page, night_summary.page(campaign))
    if summary is not None:
        _write(summary, night_summary.summary(campaign, new))
    if json:
        write_json(campaign.to_json() | {"new": sorted(new)})
    else:
        night_summary.print_campaign(results(), campaign)
    return int(bool(new) and fail_on_new)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
