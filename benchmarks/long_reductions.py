"""Reduction: programs of about 200 instructions with one planted fault, and how they end.

Each fault of `aliasproof/faults/` is tried on the same drawn programs. The first on which results
differ is reduced. The predicate is that of a campaign.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aliasproof.faults.catalogue import fault_named
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.programs.program import Program
from aliasproof.reduction.reducer import Reducer
from aliasproof.trials.attribution import Symptom, grade, graded
from aliasproof.trials.examination import examine
from aliasproof.trials.trial import Case
from benchmarks.tables import Table

# Faults in functionalization, in the epilogue, in the removal of no-ops and in reinplacing.
FAULTS = (
    "epilogue is dead code",
    "view is not regenerated",
    "reads ignore queued writes",
    "slice loses its start",
    "copy of a mutated input is dropped",
    "without no later use",
    "each view has its own liveness",
    "without no overlapping operand",
)
SEEDS = (0, 1, 2)
SHORTEST, LONGEST = 180, 220  # instructions
FEW = 6  # instructions


@dataclass(frozen=True, slots=True)
class ReducedProgram:
    """One reduction. `until_few` counts the candidates tried until at most `FEW` were left."""

    fault: str
    seed: int
    before: int
    after: int
    until_few: int | None
    tried: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ReductionFigures:
    """All reductions; faults that no program showed are not among them."""

    reductions: Sequence[ReducedProgram]

    def tables(self) -> list[Table]:
        """One row per reduction."""
        columns = ("fault", "seed", "from", "to", f"tried until {FEW}", "tried", "s")
        rows = [
            (
                each.fault,
                str(each.seed),
                str(each.before),
                str(each.after),
                "-" if each.until_few is None else str(each.until_few),
                str(each.tried),
                f"{each.seconds:.0f}",
            )
            for each in self.reductions
        ]
        return [Table("Reduction of long programs with a planted fault", columns, rows)]


def measure(faults: Sequence[str] = FAULTS, seeds: Sequence[int] = SEEDS) -> ReductionFigures:
    """Reduce one program per fault and seed."""
    return ReductionFigures(
        [found for fault in faults for seed in seeds if (found := _reduced(fault, seed))]
    )


def _reduced(fault: str, seed: int) -> ReducedProgram | None:
    target = fault_named(fault).target
    for program in _long_programs(seed):
        found = examine(Case.of(program), target)
        if found.failed and found.symptom is not None:
            return _reduction(fault, seed, program, found.symptom)
    return None


def _long_programs(seed: int, most: int = 3) -> Iterator[Program]:
    features = replace(swarm(seed), instructions=LONGEST)
    drawn = (each for each in sample(features, seed, 40) if len(each) >= SHORTEST)
    yield from (program for program, _ in zip(drawn, range(most), strict=False))


def _reduction(fault: str, seed: int, program: Program, symptom: Symptom) -> ReducedProgram:
    target = fault_named(fault).target
    tried, until_few = 0, None

    def predicate(candidate: Program) -> int:
        nonlocal tried, until_few
        tried += 1
        answer = grade(candidate, target, symptom)
        if answer and len(candidate) <= FEW and until_few is None:
            until_few = tried
        return answer

    started = time.perf_counter()
    reducer = Reducer(program, predicate, best_grade=len(graded(symptom)))
    smallest = reducer.run()
    seconds = time.perf_counter() - started
    return ReducedProgram(
        fault, seed, len(program), len(smallest), until_few, reducer.tried, seconds
    )
