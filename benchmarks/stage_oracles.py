"""What uninterpreted execution costs, and which in-place opportunities targets miss.

Table *uninterpreted execution*: CPU time of a program, run plainly and on value hashes, per program
and per instruction. *ms of 10* is the time for a program of ten instructions.

Table *missed opportunities*: only programs on which the target is right count. *missed* is how many
calls of its last graph could have been in place, and copies left out; *bytes* is what they
allocate. Only targets whose last graph runs by itself are measured.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.oracles.equivalence import run_uninterpreted
from aliasproof.oracles.missed import Opportunity, missed
from aliasproof.oracles.observation import observe_eager
from aliasproof.programs.errors import Rejected
from aliasproof.programs.execution import ProgramFunction
from aliasproof.programs.program import Program
from aliasproof.programs.values import input_tensors
from aliasproof.targets.registry import TARGETS
from aliasproof.trials.trial import Case, run_trial
from benchmarks.tables import Table

MEASURED = ("functionalize", "fx-reinplace", "reference", "reference-copy")
MOST_OPS = 6  # named in a row
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class MissedCounts:
    """What one target missed: programs, opportunities, bytes, and how often each op."""

    target: str
    programs: int
    opportunities: int
    nbytes: int
    ops: dict[str, int]


@dataclass(frozen=True, slots=True)
class StageOracleFigures:
    """CPU seconds of all programs together, and what targets missed."""

    programs: int
    instructions: int
    plain: float
    uninterpreted: float
    missed: Sequence[MissedCounts]

    def tables(self) -> list[Table]:
        microseconds = 1e6 * self.uninterpreted / self.instructions
        cost = Table(
            "stage_oracles: uninterpreted execution",
            ("", "plain ms", "on value hashes ms", "us per call", "ms of 10"),
            [
                (
                    "equivalence",
                    f"{1e3 * self.plain / self.programs:.3f}",
                    f"{1e3 * self.uninterpreted / self.programs:.3f}",
                    f"{microseconds:.0f}",
                    f"{microseconds / 100:.2f}",
                )
            ],
            [f"{self.programs} programs of {self.instructions / self.programs:.1f} instructions."],
        )
        opportunities = Table(
            "stage_oracles: missed opportunities",
            ("target", "programs", "missed", "bytes", "most often"),
            [
                (
                    counts.target,
                    str(counts.programs),
                    str(counts.opportunities),
                    str(counts.nbytes),
                    _most_often(counts),
                )
                for counts in self.missed
            ],
        )
        return [cost, opportunities]


def measure(
    shards: int = 20, programs: int = 15, targets: Sequence[str] = MEASURED
) -> StageOracleFigures:
    """Draw `shards` times `programs` programs."""
    drawn = [program for seed in range(shards) for program in _well_defined(seed, programs)]
    plain = _seconds(drawn, uninterpreted=False)
    uninterpreted = _seconds(drawn, uninterpreted=True)
    counts = [_missed(name, drawn) for name in targets]
    return StageOracleFigures(len(drawn), sum(map(len, drawn)), plain, uninterpreted, counts)


def _well_defined(seed: int, count: int) -> Iterator[Program]:
    for program in sample(swarm(seed), seed, count):
        try:
            observation, _ = observe_eager(ProgramFunction(program), input_tensors(program))
        except Rejected:
            continue
        if observation.error is None:
            yield program


def _seconds(programs: Sequence[Program], *, uninterpreted: bool) -> float:
    """CPU seconds for all programs; the least of some rounds, since noise only adds time."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for program in programs:
            function, inputs = ProgramFunction(program), input_tensors(program)
            if uninterpreted:
                run_uninterpreted(function, inputs)
            else:
                function(*inputs)
        rounds.append(time.process_time() - start)
    return min(rounds)


def _missed(name: str, programs: Sequence[Program]) -> MissedCounts:
    found: list[Opportunity] = []
    right = 0
    for program in programs:
        case = Case.of(program)
        trial = run_trial(case, TARGETS[name])
        if trial.build is None or trial.target.error is not None or trial.judgement.violations:
            continue
        try:
            found += missed(trial.build.stages[-1], case.fresh_inputs)
        except Rejected:
            # The graph reads uninitialised memory before it overwrites it, so there is no defined
            # result to compare with.
            continue
        right += 1
    ops = Counter(opportunity.op for opportunity in found)
    nbytes = sum(opportunity.nbytes for opportunity in found)
    return MissedCounts(name, right, len(found), nbytes, dict(ops.most_common()))


def _most_often(counts: MissedCounts) -> str:
    return ", ".join(
        f"{op.split('.')[1]} {count}" for op, count in list(counts.ops.items())[:MOST_OPS]
    )
