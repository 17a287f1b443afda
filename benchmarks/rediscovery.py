"""What a blind search meets of the known bugs, with programs as they were drawn before and now.

*Blind*: no scenario is played whose family names a known bug, and no program of a known bug runs.
*before* draws no program from rules of the compiler, nor for generated code, and compiles in no
other way than the target's own; *now* does what a campaign does, which compiles some shards in a
variant. They take turns, shard by shard with equal seeds, and each target has equal processor time
on both sides. That time includes drawing, and telling which bug a violation is. A bug that was met
often on a side is mended in its later shards, as in a campaign, so that it hides no others.

A bug counts as met if mending it removes the violation, or if the violation has its mark. Marks
that say something of reduced programs alone are told apart (*suspected* in campaigns, too).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from aliasproof.campaigns.store.plan import PROGRAMS_PER_SHARD, Shard, in_another_way
from aliasproof.corpus.known_bug import KnownBug
from aliasproof.corpus.known_bugs import KNOWN_BUGS
from aliasproof.generators.features import Features, swarm
from aliasproof.generators.scenarios import SCENARIOS
from aliasproof.targets.names import FUZZED
from aliasproof.targets.registry import target as target_named
from benchmarks.drawn_causes import UNKNOWN, Batch, Yield, run_in, worker
from benchmarks.tables import Table

FIRST_SEED = 7000
OFTEN = 5  # hits of a bug, after which it is mended
BEFORE, NOW = "before", "now"
SIDES = (BEFORE, NOW)


def written_for_bugs() -> frozenset[str]:
    """The scenarios whose family names a known bug. How inputs are drawn is no scenario of one."""
    return frozenset(
        scenario.name
        for scenario in SCENARIOS
        if scenario.play is not None and set(re.split("[,;] *", scenario.family)) & set(KNOWN_BUGS)
    )


def blind_features(target: str, side: str, seed: int) -> Features:
    """The features of a shard with that seed, without scenarios that were written for bugs."""
    features = swarm(seed) if side == BEFORE else Shard(seed, target).features()
    left_out = written_for_bugs()
    kept = tuple(name for name in features.scenarios if name not in left_out)
    return replace(features, scenarios=kept, rules=0 if side == BEFORE else features.rules)


def reachable(bug: KnownBug, targets: Sequence[str]) -> bool:
    """Whether the bug shows on one of these targets, without a variant of it."""
    return any(name in targets for name in bug.targets)


@dataclass(slots=True)
class BlindSearch:
    """What one side found on one target."""

    target: str
    side: str
    found: Yield = field(default_factory=Yield)

    def next_batch(self, seed: int) -> Batch:
        """The shard with that seed; bugs that were met often are mended."""
        often = tuple(
            name
            for name, hits in self.found.causes.items()
            if hits >= OFTEN and name in KNOWN_BUGS and KNOWN_BUGS[name].mended is not None
        )
        target = self.target
        if self.side == NOW:
            target = in_another_way(target, seed - FIRST_SEED, swarm(seed))
        features = blind_features(target, self.side, seed)
        return Batch(target, features, seed, PROGRAMS_PER_SHARD, mended=often)


@dataclass(frozen=True, slots=True)
class Rediscovery:
    """All searches; each had `seconds` of processor time."""

    seconds: float
    searches: Sequence[BlindSearch]

    def met(self, side: str) -> set[str]:
        """The known bugs that a side met on any target."""
        mine = [search.found.causes for search in self.searches if search.side == side]
        return {name for causes in mine for name in causes if name in KNOWN_BUGS}

    def tables(self) -> list[Table]:
        rows = [self._row(search) for search in self.searches]
        targets = tuple(dict.fromkeys(search.target for search in self.searches))
        goal = {name for name, bug in KNOWN_BUGS.items() if reachable(bug, targets)}
        notes = [
            f"{self.seconds:.0f} seconds of processor time for each row.",
            f"Left out: the scenarios {', '.join(sorted(written_for_bugs()))}.",
        ]
        for side in SIDES:
            met = self.met(side)
            notes.append(
                f"{side}: {len(met & goal)} of the {len(goal)} bugs that show on these targets,"
                f" and {len(met - goal)} others ({', '.join(sorted(met - goal)) or 'none'})"
            )
        both = self.met(BEFORE) & self.met(NOW)
        for side in SIDES:
            alone = sorted(self.met(side) - both)
            notes.append(f"{side} alone: {', '.join(alone) or 'none'}")
        missed = sorted(goal - self.met(BEFORE) - self.met(NOW))
        notes.append(f"not met: {', '.join(missed) or 'none'}")
        columns = ("target", "drawn as", "programs", "violate", "died", "known bugs", "unknown")
        return [Table("rediscovery: known bugs that a blind search meets", columns, rows, notes)]

    def _row(self, search: BlindSearch) -> tuple[str, ...]:
        causes = search.found.causes
        known = [name for name in causes if name in KNOWN_BUGS]
        unknown = sum(name.startswith(UNKNOWN) for name in causes)
        found = search.found
        counts = (found.programs, found.violations, found.died, len(known), unknown)
        return (search.target, search.side, *map(str, counts))


def measure(seconds: float, targets: Sequence[str] = ()) -> Rediscovery:
    """Search each target for so many seconds of processor time on each side."""
    names = targets or FUZZED
    runs = [name for name in names if target_named(name).unavailable() is None]
    searches = [BlindSearch(target, side) for target in runs for side in SIDES]
    with worker(runs) as pool:
        for search, seed in _turns(searches, seconds):
            search.found.add(run_in(pool, search.next_batch(seed)))
    return Rediscovery(seconds, searches)


def _turns(searches: Sequence[BlindSearch], seconds: float) -> Iterator[tuple[BlindSearch, int]]:
    """The searches that have time left, in turns, each with the seed of its next shard."""
    seed = FIRST_SEED
    while running := [it for it in searches if it.found.all_seconds < seconds]:
        yield from ((search, seed) for search in running)
        seed += 1
