"""What scenarios and swarm switches add: causes found in equal time, with and without them.

- *uniform*: everything is switched on except scenarios; ops and arguments are uniform.
- *scenarios*: everything is switched on.
- *scenarios and swarm*: as in a campaign; each shard has switches of its own. No program is derived
  from rules.
- *rules*: the same switches, and each program is derived from a rule of Inductor.

They take turns, batch by batch, until each has had its seconds of processor time for the
target. What it costs to tell the causes is not in them. *causes* are known bugs of torch and, as a
lower bound, unknown ones (`benchmarks.scenario_yield`); *after half* are those that the first half
of the time showed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from aliasproof.campaigns.store.plan import PROGRAMS_PER_SHARD
from aliasproof.generators.features import Features, swarm
from aliasproof.targets.registry import target as target_named
from benchmarks.drawn_causes import UNKNOWN, Batch, Yield, run_in, worker
from benchmarks.tables import Table

TARGETS = ("aot", "inductor-fx", "inductor")
FIRST_SEED = 1000
UNIFORM, WITH_SCENARIOS, WITH_SWARM = "uniform", "scenarios", "scenarios and swarm"
FROM_RULES = "rules"


def features_of(configuration: str, seed: int) -> Features:
    """The features of a batch with that seed."""
    if configuration in (WITH_SWARM, FROM_RULES):
        return replace(swarm(seed), rules=100 if configuration == FROM_RULES else 0)
    return Features(scenarios=()) if configuration == UNIFORM else Features()


@dataclass(slots=True)
class Search:
    """What one configuration found on one target."""

    target: str
    configuration: str
    found: Yield = field(default_factory=Yield)
    after_half: int = 0


@dataclass(frozen=True, slots=True)
class AblationFigures:
    """All searches; each had `seconds` of processor time."""

    seconds: float
    searches: Sequence[Search]

    def tables(self) -> list[Table]:
        rows = []
        for search in self.searches:
            unknown = sum(cause.startswith(UNKNOWN) for cause in search.found.causes)
            counts = (
                search.found.programs,
                search.found.violations,
                len(search.found.causes),
                unknown,
            )
            rows.append(
                (
                    search.target,
                    search.configuration,
                    *map(str, counts),
                    str(search.after_half),
                    f"{search.found.per_minute:.1f}",
                )
            )
        notes = [f"{self.seconds:.0f} seconds of processor time for each row."]
        for search in self.searches:
            known = sorted(name for name in search.found.causes if not name.startswith(UNKNOWN))
            notes.append(f"{search.target}, {search.configuration}: {', '.join(known) or 'none'}")
        notes += sorted({name for search in self.searches for name in search.found.unknown})
        columns = ("target", "programs are", "programs", "violate", "causes", "unknown")
        title = "ablation: causes in equal time"
        return [Table(title, (*columns, "after half", "per minute"), rows, notes)]


def measure(
    seconds: float = 120.0,
    targets: Sequence[str] = TARGETS,
    programs: int = PROGRAMS_PER_SHARD,
) -> AblationFigures:
    """Search on each target with each configuration; targets that cannot run here are left out."""
    runs = [name for name in targets if target_named(name).unavailable() is None]
    configurations = (UNIFORM, WITH_SCENARIOS, WITH_SWARM, FROM_RULES)
    searches = [
        Search(target, configuration) for target in runs for configuration in configurations
    ]
    with worker(runs) as pool:
        for target in runs:
            of_target = [search for search in searches if search.target == target]
            seed = FIRST_SEED
            while running := [search for search in of_target if search.found.seconds < seconds]:
                for search in running:
                    features = features_of(search.configuration, seed)
                    search.found.add(run_in(pool, Batch(target, features, seed, programs)))
                    if search.found.seconds < seconds / 2:
                        search.after_half = len(search.found.causes)
                seed += 1
    return AblationFigures(seconds, searches)
