"""The command `merge`: joins runs, and prints the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aliasproof.campaigns.store.merging import merge
from aliasproof.campaigns.store.run_folder import read_findings
from aliasproof.programs.errors import UserError
from aliasproof.reports.campaign_outcome import print_outcome
from aliasproof.reports.console import results, write_json
from aliasproof.reports.night_summary import page, summary
from aliasproof.trials.worker import quiet_torch


def merge_runs(
    folder: Path,
    runs: Sequence[Path],
    *,
    as_json: bool,
    page_file: Path | None = None,
    summary_file: Path | None = None,
) -> bool:
    """Join runs into a folder, and print what they found together.

    True if there is a finding that was not in the folder before, and is no known bug.
    """
    quiet_torch()
    before = {finding.identifier for finding in read_findings(folder)}
    campaign = merge(folder, runs)
    new = {
        name
        for name, finding in campaign.findings.items()
        if name not in before and finding.known is None
    }
    if page_file is not None:
        _write(page_file, page(campaign))
    if summary_file is not None:
        _write(summary_file, summary(campaign, new))
    if as_json:
        write_json(campaign.to_json() | {"new": sorted(new)})
    else:
        print_outcome(results(), campaign)
    return bool(new)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
