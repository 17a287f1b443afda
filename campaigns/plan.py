"""`Plan`: what a campaign runs, and for how long."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from campaigns.shard import PROGRAMS_PER_SHARD, Shard
from targets.registry import target as target_named
from trials.worker import SEEDS_APART


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: `programs` per target, or for about `seconds`, whichever ends first.

    Without either, a campaign runs until it is interrupted. `workers` is the number of processes.
    With `past_known`, torch runs with the known bugs mended, so that only new ones show. Programs
    are on `device`. `group` of them are compiled as one; None for the fastest number for each
    target. It changes no finding.
    """

    targets: tuple[str, ...]
    seed: int = 0
    programs: int | None = None
    seconds: float | None = None
    workers: int = field(default_factory=lambda: max(os.cpu_count() or 1, 1))
    past_known: bool = False
    device: str = "cpu"
    group: int | None = None

    def shards(self) -> Iterator[Shard]:
        """The shards in order."""
        for number in itertools.count():
            left = (
                PROGRAMS_PER_SHARD
                if self.programs is None
                else self.programs - number * PROGRAMS_PER_SHARD
            )
            if left <= 0:
                return
            # Equal seeds for all targets, so that they get the same programs. The targets take
            # turns, so that a campaign that ends early has tried all of them.
            for target in self.targets:
                seed, count = self.seed * SEEDS_APART + number, min(left, PROGRAMS_PER_SHARD)
                group = self.group or target_named(target).group
                yield Shard(seed, target, count, frozenset(), self.past_known, self.device, group)
