"""What rules and learning add: sites, pairs and known bugs in equal time, from equal seeds.

- *old*: programs as they were drawn before there were rules (`--rules 0 --no-learning`).
- *rules*: as a campaign draws them, with rules in each fourth shard (`--no-learning`).
- *learning*: no rules, and half of the shards edit stored programs (`--rules 0`).
- *both*: what a campaign does.

They take turns, shard by shard, until each has had its seconds of processor time on a target. What
it costs to tell known bugs is not in them. A *site* is a place at which the compiler may rewrite a
program, a *pair* a site and a kind of aliasing (`campaigns.run.learning`), both of the targets'
own. *bugs* are distinct known bugs, those that only look like one left out; *others* are distinct
symptoms of violations that are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from aliasproof.campaigns.run.learning import Learning
from aliasproof.campaigns.run.local_workers import EXAMINE_SHARD
from aliasproof.campaigns.run.shard import ShardResult
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.processes.outcome import Death, Raised
from aliasproof.processes.pool import Pool, RemoteCall
from aliasproof.targets.registry import target as target_named
from benchmarks.drawn_causes import worker
from benchmarks.tables import Table

TARGETS = ("aot", "inductor-fx")
SEED = 1
CONFIGURATIONS: dict[str, tuple[int | None, bool]] = {  # rules, learning
    "old": (0, False),
    "rules": (None, False),
    "learning": (0, True),
    "both": (None, True),
}


@dataclass(slots=True)
class LearningSearch:
    """What one configuration found on one target."""

    target: str
    configuration: str
    shards: int = 0
    edited: int = 0
    programs: int = 0
    seconds: float = 0.0
    sites: int = 0
    pairs: int = 0
    violations: int = 0
    bugs: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def add(self, shard: Shard, result: ShardResult) -> None:
        """Count what a shard showed."""
        self.shards += 1
        self.edited += bool(shard.stored)
        self.programs += result.statistics.programs
        self.seconds += result.searching
        self.violations += result.statistics.violating
        for failure in result.failures:
            name = failure.known or f"{failure.symptom.oracle}: {failure.symptom.kind}"
            names = self.bugs if failure.known else self.others
            if name not in names and (failure.known or not failure.suspected):
                names.append(name)

    def cells(self) -> Sequence[str]:
        """The row of the table."""
        counts = (self.programs, self.sites, self.pairs, len(self.bugs), len(self.others))
        rate = self.programs / self.seconds if self.seconds else 0.0
        row = (self.target, self.configuration, *map(str, counts), str(self.violations))
        return (*row, f"{rate:.1f}", f"{self.edited} of {self.shards}")


@dataclass(frozen=True, slots=True)
class LearningFigures:
    """All searches; each had `seconds` of processor time."""

    seconds: float
    seed: int
    searches: Sequence[LearningSearch]

    def tables(self) -> list[Table]:
        """The figures for people."""
        columns = ("target", "programs are", "programs", "sites", "pairs", "bugs", "others")
        columns += ("violations", "per second", "shards that edit")
        notes = [f"{self.seconds:.0f} seconds of processor time for each row, seed {self.seed}."]
        for target in dict.fromkeys(search.target for search in self.searches):
            of_target = [search for search in self.searches if search.target == target]
            for search in of_target:
                others = {bug for it in of_target if it is not search for bug in it.bugs}
                alone = sorted({*search.bugs} - others)
                notes.append(f"{target}, only {search.configuration}: {', '.join(alone) or 'none'}")
        rows = [search.cells() for search in self.searches]
        return [Table("learning: what is met in equal time", columns, rows, notes)]


@dataclass(slots=True)
class _Campaign:
    """The shards of one search in order, and what they taught so far."""

    search: LearningSearch
    shards: Iterator[Shard]
    learns: bool
    learning: Learning = field(default_factory=Learning)

    @classmethod
    def of(cls, target: str, configuration: str, seed: int) -> _Campaign:
        rules, learns = CONFIGURATIONS[configuration]
        plan = Plan((target,), seed=seed, rules=rules, learning=learns)
        return cls(LearningSearch(target, configuration), plan.shards(), learns)

    def run_next(self, pool: Pool) -> None:
        """Run the next shard, without the programs that end the worker."""
        shard = next(self.shards)
        if self.learns:
            prepared = self.learning.prepared(shard, self.search.shards)
            assert prepared is not None  # shards before it were taken
            shard = prepared
        while True:
            pool.submit(RemoteCall("", EXAMINE_SHARD, (shard,)))
            _, outcome = pool.take()
            if isinstance(outcome, Raised):
                raise outcome.error
            if not isinstance(outcome, Death):
                break
            skip = shard.skip.union(outcome.programs)
            if skip == shard.skip:
                return
            shard = replace(shard, skip=skip)
        # All learn, to count their pairs; the old ones edit nothing.
        self.learning.add(outcome.value)
        self.learning.take()
        self.search.add(shard, outcome.value)
        learned = self.learning.of(shard.target)
        self.search.sites, self.search.pairs = len(learned.fired), len(learned.pairs)


def measure(
    seconds: float = 120.0,
    targets: Sequence[str] = TARGETS,
    seed: int | None = None,
    configurations: Sequence[str] = tuple(CONFIGURATIONS),
) -> LearningFigures:
    """Search on each target with each configuration; targets that cannot run here are left out."""
    seed = SEED if seed is None else seed
    runs = [name for name in targets if target_named(name).unavailable() is None]
    campaigns = [_Campaign.of(target, name, seed) for target in runs for name in configurations]
    with worker(runs) as pool:
        while open_ := [it for it in campaigns if it.search.seconds < seconds]:
            # One target after the other, and its configurations in turns.
            target = open_[0].search.target
            for campaign in open_:
                if campaign.search.target == target:
                    campaign.run_next(pool)
    return LearningFigures(seconds, seed, [campaign.search for campaign in campaigns])
