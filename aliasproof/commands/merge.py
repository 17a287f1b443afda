"""The command `merge`: joins runs, and prints the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from campaigns.merging import merge
from reports.campaign_outcome import print_outcome
from reports.console import results, write_json
from trials.worker import quiet_torch


def merge_runs(folder: Path, runs: Sequence[Path], *, as_json: bool) -> None:
    """Join runs into a folder, and print what they found together."""
    quiet_torch()
    campaign = merge(folder, runs)
    if as_json:
        write_json(campaign.to_json())
    else:
        print_outcome(results(), campaign)
