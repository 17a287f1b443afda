"""What a campaign costs beside its programs: the share of the driver, and a second worker.

The same campaign runs with one worker and with two. *programs per CPU second* is that of all its
processes, so that other load on the machine changes little. *driver* is the share of the driver's
processor time in that of all processes, from the start of the search on: scheduling, writing the
store and the folders. *at once* is processor time divided by wall time: with two free cores, two
workers come near to 2. A second worker is worth the ratio of the last two columns.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.run.plan import Plan
from benchmarks.tables import Table, percent

TARGETS = ("functionalize", "aot", "inductor-fx")
PROGRAMS = 50  # per target
SEED = 17


@dataclass(frozen=True, slots=True)
class CampaignFigures:
    """One campaign. Times are in seconds, `driver` and `whole` of the processor."""

    workers: int
    programs: int
    driver: float
    whole: float
    wall: float
    findings: tuple[str, ...]

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of the table."""
        return (
            str(self.workers),
            str(self.programs),
            f"{self.programs / self.whole:.2f}",
            percent(self.driver / self.whole),
            f"{self.whole / self.wall:.2f}",
            f"{self.programs / self.wall:.2f}",
        )


@dataclass(frozen=True, slots=True)
class CostFigures:
    """The same campaign with one worker and with two."""

    campaigns: tuple[CampaignFigures, ...]

    def tables(self) -> list[Table]:
        """The figures for people."""
        first, second = self.campaigns
        head = ("workers", "programs", "programs/CPU s", "driver", "at once", "programs/s")
        rows = [campaign.row for campaign in self.campaigns]
        same = "equal" if first.findings == second.findings else "other"
        notes = [f"{len(first.findings)} findings, and {same} ones with 2 workers"]
        return [Table("What a campaign costs", head, rows, notes)]


def measure() -> CostFigures:
    """Run the campaign with each number of workers."""
    return CostFigures(tuple(_campaign(workers) for workers in (1, 2)))


def _campaign(workers: int) -> CampaignFigures:
    with tempfile.TemporaryDirectory(prefix="aliasproof-") as folder:
        before, start = time.process_time(), time.perf_counter()
        plan = Plan(TARGETS, SEED, PROGRAMS, workers=workers)
        campaign = fuzz(plan, Path(folder) / "run")
        driver, wall = time.process_time() - before, time.perf_counter() - start
    spent = sum(asdict(campaign.spent).values())
    found = tuple(sorted(campaign.findings))
    return CampaignFigures(workers, campaign.total.programs, driver, driver + spent, wall, found)
