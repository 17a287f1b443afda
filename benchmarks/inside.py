"""What uninterpreted execution costs, and what targets miss.

- *terms*: CPU time of a program run plainly, and followed on tokens, by program and by instruction;
  *ms of 10* is what a program of ten instructions comes to.
- *missed*: over programs on which the target is right, the calls of its last graph that could have
  been in place and the copies that could go, and their bytes. Only targets whose last graph can be
  run by itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.tables import Table
from generators.features import swarm
from generators.strategies import sample
from oracles.equivalence import run_uninterpreted
from oracles.missed import Opportunity, missed
from oracles.observation import observe_eager
from programs.errors import Rejected
from programs.execution import ProgramFunction
from programs.program import Program
from programs.values import input_tensors
from targets.registry import TARGETS
from trials.trial import Case, run_trial

MISSING = ("functionalize", "fx-reinplace", "reference", "reference-copy")
MOST_OPS = 6  # named in a row


@dataclass(frozen=True, slots=True)
class Missed:
    """What one target missed: programs looked at, opportunities, bytes, and how often each op."""

    target: str
    programs: int
    opportunities: int
    nbytes: int
    ops: dict[str, int]


@dataclass(frozen=True, slots=True)
class InsideFigures:
    """CPU seconds of all programs together, and what targets missed."""

    programs: int
    instructions: int
    plain: float
    terms: float
    missed: Sequence[Missed]

    def tables(self) -> list[Table]:
        each = 1e6 * self.terms / self.instructions
        row = (
            "equivalence",
            f"{1e3 * self.plain / self.programs:.3f}",
            f"{1e3 * self.terms / self.programs:.3f}",
            f"{each:.0f}",
            f"{each / 100:.2f}",
        )
        notes = [
            f"{self.programs} programs of {self.instructions / self.programs:.1f} instructions."
        ]
        cost = Table(
            "inside: uninterpreted execution",
            ("", "plain ms", "terms ms", "us a call", "ms of 10"),
            [row],
            notes,
        )
        rows = [
            (one.target, str(one.programs), str(one.opportunities), str(one.nbytes), _often(one))
            for one in self.missed
        ]
        return [
            cost,
            Table(
                "inside: missed opportunities",
                ("target", "programs", "missed", "bytes", "most often"),
                rows,
            ),
        ]


def measure(
    shards: int = 20, programs: int = 15, targets: Sequence[str] = MISSING
) -> InsideFigures:
    """Draw `shards` times `programs` programs."""
    drawn = [each for seed in range(shards) for each in _well_defined(seed, programs)]
    plain = _seconds(drawn, follow=False)
    terms = _seconds(drawn, follow=True)
    return InsideFigures(
        len(drawn), sum(map(len, drawn)), plain, terms, [_missed(name, drawn) for name in targets]
    )


def _well_defined(seed: int, count: int) -> Iterator[Program]:
    for program in sample(swarm(seed), seed, count):
        try:
            observation, _ = observe_eager(ProgramFunction(program), input_tensors(program))
        except Rejected:
            continue
        if observation.error is None:
            yield program


def _seconds(programs: Sequence[Program], *, follow: bool) -> float:
    """The least of three rounds."""
    rounds = []
    for _ in range(3):
        start = time.process_time()
        for each in programs:
            function, inputs = ProgramFunction(each), input_tensors(each)
            if follow:
                run_uninterpreted(function, inputs)
            else:
                function(*inputs)
        rounds.append(time.process_time() - start)
    return min(rounds)


def _missed(name: str, programs: Sequence[Program]) -> Missed:
    found: list[Opportunity] = []
    right = 0
    for program in programs:
        subject = Case.of(program)
        trial = run_trial(subject, TARGETS[name])
        finished = (
            trial.target is not None and trial.target.error is None and trial.build is not None
        )
        if not finished or trial.judgement.refused is not None or trial.judgement.violations:
            continue
        assert trial.build is not None
        try:
            found += missed(trial.build.stages[-1], subject.fresh_inputs)
        except (
            Rejected
        ):  # the graph reads memory that nobody wrote, to store over it: nothing to hold it against
            continue
        right += 1
    ops = Counter(each.op for each in found)
    return Missed(
        name, right, len(found), sum(each.nbytes for each in found), dict(ops.most_common())
    )


def _often(one: Missed) -> str:
    return ", ".join(
        f"{op.split('.')[1]} {count}" for op, count in list(one.ops.items())[:MOST_OPS]
    )
