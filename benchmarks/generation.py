"""Two ways to draw the same programs: from a seed (`sample`) and through Hypothesis.

Campaigns draw from a seed; this table shows why. Both ways call the same code. They differ only in
who makes its choices. Hypothesis (`@given(programs())`) runs its generation phase alone, without
example database or health checks, once for each shard, as a campaign would. It prefers the simplest
examples and variations of earlier ones. That is right for tests that shrink, but not for a search.

How to read a row:

- *CPU ms* is per program. *instructions* is the mean number per program, which explains part of the
  time.
- *distinct* is the share of op sequences that differ. Two programs that differ only in arguments
  count once.
- *ops* is how many of the drawable ops occur at all. *most frequent* is the share of the commonest
  op in all instructions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, given, seed, settings

from aliasproof.generators.features import Features, swarm
from aliasproof.generators.operators import OPERATORS
from aliasproof.generators.strategies import programs as strategy
from aliasproof.generators.strategies import sample
from aliasproof.programs.program import Program
from benchmarks.tables import Table, percent

FIRST_SEED = 2000  # one seed per shard

Draw = Callable[[Features, int, int], list[Program]]


@dataclass(frozen=True, slots=True)
class DrawnFigures:
    """The figures of one way to draw; `ms` is milliseconds of CPU time per program."""

    name: str
    programs: int
    ms: float
    instructions: float
    distinct: float
    ops: int
    most_frequent: float


@dataclass(frozen=True, slots=True)
class Generation:
    """All ways, with equal features and seeds; `ops` is how many ops can be drawn."""

    ops: int
    ways: Sequence[DrawnFigures]

    def tables(self) -> list[Table]:
        base = self.ways[0].ms
        rows = [
            (
                way.name,
                str(way.programs),
                f"{way.ms:.2f}",
                f"{way.ms / base:.1f}",
                f"{way.instructions:.1f}",
                percent(way.distinct),
                f"{way.ops} of {self.ops}",
                percent(way.most_frequent),
            )
            for way in self.ways
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
    # Only these count as used: the column is "ops of all drawable ops".
    names = {operator.name for operator in OPERATORS}
    return Generation(
        len(names), tuple(_way(name, drawn[name], seconds[name], names) for name in ways)
    )


def from_seed(features: Features, number: int, count: int) -> list[Program]:
    """The way of campaigns."""
    return list(sample(features, number, count))


def through_hypothesis(features: Features, number: int, count: int) -> list[Program]:
    """The way of tests; Hypothesis may stop early, if it believes that it has seen all programs."""
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


def _way(name: str, drawn: Sequence[Program], seconds: float, names: set[str]) -> DrawnFigures:
    sequences = {tuple(call.op for call in program.instructions) for program in drawn}
    used = Counter(call.op for program in drawn for call in program.instructions)
    return DrawnFigures(
        name=name,
        programs=len(drawn),
        ms=1000 * seconds / len(drawn),
        instructions=used.total() / len(drawn),
        distinct=len(sequences) / len(drawn),
        ops=len(used.keys() & names),
        most_frequent=max(used.values(), default=0) / max(used.total(), 1),
    )
