"""What each aliasing scenario finds: causes per 1,000 programs and per minute, per target.

Each batch of programs has one scenario switched on, and only programs count that play it. The other
switches are those of a swarm shard, the same ones for each scenario and target. The first row of a
target has no scenario. The scenarios take turns, so that other load on the machine slows all of
them down alike.

How to read a row:

- *causes* are distinct: known bugs of torch, told by mending, and unknown ones, told by the target
  and the pass at fault. Several unknown causes may have one name, so that is a lower bound.
- *only here* are causes that no other row of the target shows.
- *per minute* is per minute of processor time until a violation is seen; what it costs to tell the
  cause is not in it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aliasproof.generators.features import swarm
from aliasproof.generators.scenarios import SCENARIOS
from aliasproof.targets.registry import target as target_named
from benchmarks.drawn_causes import UNKNOWN, Batch, Yield, run_in, worker
from benchmarks.tables import Table

TARGETS = ("aot", "fx-reinplace", "inductor-fx", "inductor")
NONE = "(no scenario)"
PLAYED = (NONE, *(scenario.name for scenario in SCENARIOS if scenario.play is not None))
FIRST_SEED = 1000
PROGRAMS = 25  # per batch
STEPS = 3  # per program: few, so that what is found is the scenario's


@dataclass(frozen=True, slots=True)
class ScenarioYield:
    """What each scenario found, by target and scenario."""

    seconds: float
    found: dict[str, dict[str, Yield]]

    def tables(self) -> list[Table]:
        return [self._table(target, by_scenario) for target, by_scenario in self.found.items()]

    def _table(self, target: str, by_scenario: dict[str, Yield]) -> Table:
        rows = []
        for name, figures in by_scenario.items():
            others = {
                cause
                for other in by_scenario
                if other != name
                for cause in by_scenario[other].causes
            }
            unknown = sum(cause.startswith(UNKNOWN) for cause in figures.causes)
            rows.append(
                (
                    name,
                    *map(str, (figures.programs, figures.violations, len(figures.causes), unknown)),
                    str(len(figures.causes.keys() - others)),
                    f"{figures.per_thousand:.1f}",
                    f"{figures.per_minute:.1f}",
                )
            )
        every = {cause for figures in by_scenario.values() for cause in figures.causes}
        known = sorted(cause for cause in every if not cause.startswith(UNKNOWN))
        notes = [f"known causes: {', '.join(known) or 'none'}"]
        notes += sorted(every - set(known))
        if died := sum(figures.died for figures in by_scenario.values()):
            notes.append(f"{died} batches ended their worker process.")
        columns = ("scenario", "programs", "violate", "causes", "unknown", "only here")
        return Table(f"scenarios: {target}", (*columns, "per 1,000", "per minute"), rows, notes)


def measure(
    seconds: float = 120.0,
    targets: Sequence[str] = TARGETS,
    scenarios: Sequence[str] = PLAYED,
    programs: int = PROGRAMS,
) -> ScenarioYield:
    """Run batches of each scenario on each target, for that many seconds per target.

    A round over all scenarios that has begun is finished. Targets that cannot run here are left
    out.
    """
    runs = [name for name in targets if target_named(name).unavailable() is None]
    by_target = {target: {scenario: Yield() for scenario in scenarios} for target in runs}
    with worker(runs) as pool:
        for target, of_target in by_target.items():
            seed, start = FIRST_SEED, time.monotonic()
            while seed == FIRST_SEED or time.monotonic() - start < seconds:
                for scenario in scenarios:
                    of_target[scenario].add(run_in(pool, _batch(target, scenario, seed, programs)))
                seed += 1
    return ScenarioYield(seconds, by_target)


def _batch(target: str, scenario: str, seed: int, programs: int) -> Batch:
    only = () if scenario == NONE else (scenario,)
    features = replace(swarm(seed), scenarios=only, instructions=STEPS)
    return Batch(target, features, seed, programs, "".join(only))
