"""`Learning`: which programs a campaign keeps, and which of them a shard edits.

A program is kept if it meets a *pair* that none met before: a site that it fired, and a kind of
aliasing that it has. A site alone is not enough, since most are fired soon, and rightly; a rewrite
goes wrong where the tensors around it alias in some way that the rule forgot. Pairs of two sites
would be ten times as many, and say less: long programs meet them by accident. Kinds of aliasing are
read from the program, so a pair costs microseconds.

A shard edits programs that fired rare sites. Which ones must not depend on the number of workers or
their speed. So it is decided at fixed places of the plan, as with known bugs that are mended on the
way (`FrequentBugs`): a shard of a generation knows what all generations but the one before it
stored. That one is under way meanwhile, so that no worker waits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from aliasproof.campaigns.failure.aliasing_kinds import aliasing_kinds
from aliasproof.campaigns.run.shard import RanProgram, ShardResult
from aliasproof.campaigns.store.plan import Shard, StoredProgram
from aliasproof.programs.program import Program

GENERATION = 40  # shards of the first ones; later ones have a quarter of all before
EDITING = 0.5  # the share of shards that edit stored programs
PARENTS = 25  # programs that a shard edits, one for each of its own
PER_SITE = 4  # programs that are kept for a site: the shortest, which show it best


@dataclass(slots=True)
class _Learned:
    """What the programs of one target fired: programs by site, pairs met, programs to edit."""

    fired: Counter[str] = field(default_factory=Counter)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    by_site: dict[str, tuple[StoredProgram, ...]] = field(default_factory=dict)

    def take(self, result: ShardResult) -> None:
        self.fired.update(result.statistics.fired)
        for ran in result.ran:
            met = pairs_of(ran.program, ran.fired)
            if met <= self.pairs:
                continue
            stored = StoredProgram(result.shard.seed, ran.number, ran.program)
            for site in {site for site, _ in met - self.pairs}:
                kept = sorted((*self.by_site.get(site, ()), stored), key=_size)
                self.by_site[site] = tuple(kept[:PER_SITE])
            self.pairs |= met

    def chosen(self, shard: Shard) -> tuple[StoredProgram, ...]:
        """The programs that a shard edits; those of rare sites more often."""
        source = random.Random(f"stored {shard.target} {shard.seed}")
        if not self.by_site or source.random() >= EDITING:
            return ()
        sites = sorted(self.by_site)
        weights = [1 / max(self.fired[site], 1) for site in sites]
        drawn = source.choices(sites, weights, k=PARENTS)
        stored = [source.choice(self.by_site[site]) for site in drawn]
        return tuple(dict.fromkeys(stored))

    def copy(self) -> _Learned:
        """The same, which stays as it is. It is only asked what to edit."""
        return _Learned(self.fired.copy(), set(), dict(self.by_site))


def pairs_of(program: Program, fired: Sequence[str]) -> set[tuple[str, str]]:
    """Each site that the program fired, with each kind of aliasing that it has."""
    kinds = ("", *aliasing_kinds(program))
    return {(site, kind) for site in fired for kind in kinds}


def _size(stored: StoredProgram) -> tuple[int, int, int]:
    return len(stored.program), stored.seed, stored.number


@dataclass(slots=True)
class Learning:
    """Learns from the shards that were taken, in the order of the plan."""

    _taken: int = 0
    _learned: dict[str, _Learned] = field(default_factory=dict)
    # What was known at the end of each generation, after the state at the start.
    _known: list[dict[str, _Learned]] = field(default_factory=lambda: [{}])

    def of(self, target: str) -> _Learned:
        """What is known of a target by now."""
        return self._learned.setdefault(target, _Learned())

    def add(self, result: ShardResult) -> None:
        """Learn from the shard that is taken now."""
        self.of(result.shard.target).take(result)

    def take(self) -> None:
        """The next shard of the plan was taken, with all its attempts."""
        self._taken += 1
        if generation(self._taken) > generation(self._taken - 1):
            known = {name: learned.copy() for name, learned in self._learned.items()}
            # No shard asks for what was known three generations ago.
            self._known[:-2] = [{}] * len(self._known[:-2])
            self._known.append(known)

    def prepared(self, shard: Shard, position: int) -> Shard | None:
        """The shard at a position of the plan with what it edits; None if that is open yet."""
        before = max(generation(position) - 1, 0)
        if before >= len(self._known):
            return None
        learned = self._known[before].get(shard.target)
        return shard if learned is None else replace(shard, stored=learned.chosen(shard))

    def worth_storing(self, result: ShardResult) -> list[RanProgram]:
        """The programs of a result that may be kept when its turn comes.

        Results come in any order. What was met before a result is taken is met then, too.
        """
        met = self.of(result.shard.target).pairs
        return [ran for ran in result.ran if not pairs_of(ran.program, ran.fired) <= met]


def generation(position: int) -> int:
    """The generation that a position of the plan is in."""
    return sum(1 for _ in _ends(position))


def _ends(position: int) -> Iterator[int]:
    """The ends of the generations up to a position."""
    end = GENERATION
    while end <= position:
        yield end
        end += max(GENERATION, end // 4)
