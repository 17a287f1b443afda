"""What a blind search meets of the known bugs: the goal of what is drawn.

*Blind*: scenarios whose family names a known bug are not played, and no program of a known bug
runs. Otherwise this is `fuzz` in both languages, with its default targets and a worker per core. A
bug counts as met where that campaign names it: patching it removes a violation, or its mark fits.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.store.plan import Plan, written_for_bugs
from aliasproof.corpus.bug_files import all_bugs
from aliasproof.corpus.known_bug import KnownBug
from aliasproof.generators.sites.all_sites import all_sites
from aliasproof.targets.names import BOTH, DEFAULTS
from aliasproof.targets.registry import target as target_named
from benchmarks.tables import Table


@dataclass(frozen=True, slots=True)
class Rediscovery:
    """A blind campaign. `programs` has by target how many were drawn, and how many violate.

    Its findings stay in `folder`.
    """

    folder: str
    targets: tuple[str, ...]
    seconds: float
    workers: int
    programs: dict[str, tuple[int, int]]
    met: dict[str, int]
    new: list[str]
    fired: dict[str, int]
    spent: dict[str, float]

    @classmethod
    def of(cls, campaign: Campaign) -> Rediscovery:
        kinds = {site.name: site.kind for site in all_sites()}
        return cls(
            str(campaign.folder),
            campaign.plan.targets,
            campaign.elapsed,
            campaign.plan.workers,
            {name: (it.programs, it.violating) for name, it in campaign.statistics.items()},
            dict(campaign.known),
            [finding.identifier for finding in campaign.new_findings],
            dict(Counter(kinds.get(name, "other") for name in campaign.first_fired)),
            asdict(campaign.spent),
        )

    def tables(self) -> list[Table]:
        # The known bugs of this torch and machine that show without a variant.
        version, targets = ".".join(torch.__version__.split(".")[:2]), {*self.targets}
        goal = {
            name
            for name, bug in all_bugs().items()
            if version in bug.versions
            and (not isinstance(bug, KnownBug) or (bug.shows_here and {*bug.targets} & targets))
        }
        met, whole = set(self.met), sum(self.spent.values())
        parts = (f"{name} {seconds / whole:.0%}" for name, seconds in self.spent.items())
        notes = [
            f"{self.seconds:.0f} seconds with {self.workers} workers: {', '.join(parts)}.",
            f"Met: {len(met & goal)} of the {len(goal)} bugs that show on these targets.",
            f"Sites fired: {', '.join(f'{count} {kind}' for kind, count in self.fired.items())}.",
            f"New, in {self.folder}: {', '.join(sorted(self.new)) or 'none'}.",
            f"Met beside these: {', '.join(sorted(met - goal)) or 'none'}.",
            f"Not met: {', '.join(sorted(goal - met)) or 'none'}.",
            f"Left out: the scenarios {', '.join(sorted(written_for_bugs()))}.",
        ]
        rows = [(name, *map(str, counts)) for name, counts in self.programs.items()]
        title = "rediscovery: known bugs that a blind search meets"
        return [Table(title, ("target", "programs", "violate"), rows, notes)]


def measure(seconds: float, targets: Sequence[str] = ()) -> Rediscovery:
    """Search for that many seconds."""
    names = [it for it in targets or DEFAULTS[BOTH] if target_named(it).unavailable() is None]
    plan = Plan(tuple(names), seconds=seconds, language=BOTH, blind=True)
    return Rediscovery.of(fuzz(plan, Path(tempfile.mkdtemp(prefix="rediscovery-"), "run")))
