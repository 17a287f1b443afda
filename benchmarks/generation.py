"""Two ways to draw the same programs: from a seed (`sample`) and through Hypothesis (`@given(programs())`).

Campaigns draw from a seed; this table shows why. Both ways call the same code and differ only in
who answers its choices. Hypothesis runs its generation phase alone, without example database or
health checks, once for each shard, as a campaign would. It favours the simplest examples and
variations of earlier ones, which is what tests that shrink want and a search does not.

How to read a row:

- *CPU ms* is for each program, *instructions* the mean number in it: the second explains part of
  the first.
- *distinct* is the share of op sequences that differ (two programs that differ only in arguments
  count once).
- *ops* counts which of the ops that programs are drawn from occur at all, *most frequent* the share
  of all instructions that are the commonest op.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.tables import Table, percent
from generators.features import Features, swarm
from generators.operators import OPERATORS
from generators.strategies import programs as strategy
from generators.strategies import sample
from programs.program import Program

FIRST_SEED = 2000  # of the shards; one a shard

Draw = Callable[[Features, int, int], list[Program]]


@dataclass(frozen=True, slots=True)
class Way:
    """What one way of drawing gave; `ms` is milliseconds of CPU time for a program."""

    name: str
    programs: int
    ms: float
    instructions: float
    distinct: float
    ops: int
    most_frequent: float


@dataclass(frozen=True, slots=True)
class Generation:
    """All ways, over equal features and seeds; `ops` is how many ops there are to draw."""

    ops: int
    ways: Sequence[Way]

    def tables(self) -> list[Table]:
        base = self.ways[0].ms
        rows = [
            (
                each.name,
                str(each.programs),
                f"{each.ms:.2f}",
                f"{each.ms / base:.1f}",
                f"{each.instructions:.1f}",
                percent(each.distinct),
                f"{each.ops} of {self.ops}",
                percent(each.most_frequent),
            )
            for each in self.ways
        ]
        columns = (
            "drawn",
            "programs",
            "CPU ms",
            "× seed",
            "instructions",
            "distinct",
            "ops",
            "most frequent",
        )
        return [Table("generation: from a seed or through Hypothesis", columns, rows)]


def measure(shards: int = 10, programs: int = 100) -> Generation:
    """Draw `shards` times `programs` programs each way."""
    ways: dict[str, Draw] = {"from a seed": from_seed, "through Hypothesis": through_hypothesis}
    drawn: dict[str, list[Program]] = {name: [] for name in ways}
    seconds = dict.fromkeys(ways, 0.0)
    for way in ways.values():
        way(swarm(0), 0, 10)  # warm-up
    for shard in range(FIRST_SEED, FIRST_SEED + shards):
        for name, way in ways.items():
            start = time.process_time()
            drawn[name] += way(swarm(shard), shard, programs)
            seconds[name] += time.process_time() - start
    names = {each.name for each in OPERATORS}
    return Generation(
        len(names), tuple(_way(name, drawn[name], seconds[name], names) for name in ways)
    )


def from_seed(features: Features, number: int, count: int) -> list[Program]:
    """As campaigns draw."""
    return list(sample(features, number, count))


def through_hypothesis(features: Features, number: int, count: int) -> list[Program]:
    """As tests draw; Hypothesis may stop early, when it believes that it has seen all there is."""
    drawn: list[Program] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy(features))
    def collect(program: Program) -> None:
        drawn.append(program)

    collect()
    return drawn


def _way(name: str, drawn: Sequence[Program], seconds: float, names: set[str]) -> Way:
    sequences = {tuple(each.op for each in program.instructions) for program in drawn}
    used = Counter(each.op for program in drawn for each in program.instructions)
    return Way(
        name=name,
        programs=len(drawn),
        ms=1000 * seconds / len(drawn),
        instructions=used.total() / len(drawn),
        distinct=len(sequences) / len(drawn),
        ops=len(used.keys() & names),
        most_frequent=max(used.values(), default=0) / max(used.total(), 1),
    )
