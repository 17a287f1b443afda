"""A shard: the unit of work of a campaign, a pure function of its description."""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from generators.features import swarm
from generators.scene import Counts
from generators.strategies import sample
from oracles.verdict import Violation
from programs.errors import Rejected
from programs.program import Program
from reduction.reducer import Reducer
from targets.registry import TARGETS
from trials.attribution import Signature, Symptom, at_fault, shows, signature
from trials.inspection import look_inside
from trials.trial import Case, Spent, Trial, observed_eager, run_trial

PROGRAMS_PER_SHARD = 25


@dataclass(frozen=True, slots=True)
class Shard:
    """`count` programs of one seed (which decides the swarm features too) through one target.

    The programs with the indices in `skip` are left out: they brought a worker down before.
    """

    seed: int
    target: str
    count: int = PROGRAMS_PER_SHARD
    skip: frozenset[int] = frozenset()

    def program(self, index: int) -> Program:
        """The program with that index."""
        return list(sample(swarm(self.seed), self.seed, index + 1))[index]


@dataclass(frozen=True, slots=True)
class Failure:
    """A program that violates a contract, as it was drawn, and its symptom."""

    symptom: Symptom
    program: Program


@dataclass(frozen=True, slots=True)
class Reduced:
    """A failure whose program was reduced: what is left, and what it took."""

    signature: Signature
    violation: Violation
    program: Program
    original: Program
    tried: int
    accepted: int
    exact: bool


@dataclass(slots=True)
class Tally:
    """What became of programs: all drawn; discarded as undefined in eager; outside the contract; violating it; suspicious.

    Suspicious are those that a run does not show to be wrong, but a look inside the target does.
    `instructions` says how drawing went, `spent` where the time went (reduction not included).
    """

    programs: int = 0
    discarded: int = 0
    outside: int = 0
    violating: int = 0
    suspicious: int = 0
    instructions: Counts = field(default_factory=Counts)
    spent: Spent = field(default_factory=Spent)

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        for name in ("programs", "discarded", "outside", "violating", "suspicious"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("kept", "raised", "undefined"):
            setattr(
                self.instructions,
                name,
                getattr(self.instructions, name) + getattr(other.instructions, name),
            )
        self.spent.add(other.spent)

    @property
    def discard_rate(self) -> float:
        """The share of drawn programs that eager leaves undefined."""
        return self.discarded / self.programs if self.programs else 0.0


@dataclass(slots=True)
class Suspicions:
    """By symptom: how often it came, and the shortest program of those."""

    found: dict[Symptom, tuple[int, Program]] = field(default_factory=dict)

    def note(self, symptom: Symptom, program: Program, count: int = 1) -> None:
        """Count a symptom, and keep the program if it is the shortest."""
        before, shortest = self.found.get(symptom, (0, program))
        self.found[symptom] = before + count, min(shortest, program, key=len)


@dataclass(slots=True)
class ShardResult:
    """What a shard found.

    Of suspicions, the shortest program of each symptom is kept, and how often it came.
    """

    shard: Shard
    tally: Tally = field(default_factory=Tally)
    failures: list[Failure] = field(default_factory=list)
    suspicions: Suspicions = field(default_factory=Suspicions)


def run_shard(shard: Shard, at: Callable[[int], None] = lambda index: None) -> ShardResult:
    """Draw the programs, try each, and collect those that violate the contract.

    `at` is told the index of the program that is about to run, so that a crash can be blamed on it.
    """
    result = ShardResult(shard)
    programs = sample(swarm(shard.seed), shard.seed, shard.count, result.tally.instructions)
    for index in range(shard.count):
        start = time.perf_counter()
        program = next(programs)
        result.tally.spent.generation += time.perf_counter() - start
        if index not in shard.skip:
            at(index)
            failure = _try(program, shard.target, result.tally, result.suspicions)
            if failure is not None:
                result.failures.append(failure)
    return result


def _try(program: Program, name: str, tally: Tally, suspicions: Suspicions) -> Failure | None:
    subject, target = Case.of(program), TARGETS[name]
    tally.programs += 1
    try:
        eager = observed_eager(subject, tally.spent)
        if eager[0].error is not None:
            raise Rejected("eager raises")
        trial = run_trial(subject, target, tally.spent, eager)
    except Rejected:
        tally.discarded += 1
        return None
    tally.outside += trial.judgement.refused is not None
    violation = next(iter(trial.judgement.violations), None)
    if violation is None:
        start = time.perf_counter()
        inside = look_inside(subject, target, trial).violations
        tally.spent.inside += time.perf_counter() - start
        tally.suspicious += bool(inside)
        for each in inside[:1]:
            suspicions.note(Symptom(name, each.oracle, each.kind), program)
        return None
    tally.violating += 1
    guilty, main = at_fault(subject, target, trial, violation)
    return Failure(Symptom(guilty.name, main.oracle, main.kind), program)


def reduce_failure(failure: Failure) -> Reduced | None:
    """Reduce the program of a failure; None if it does not fail again, so that it is no finding."""
    target, symptom = TARGETS[failure.symptom.target], failure.symptom

    def predicate(candidate: Program) -> bool:
        return shows(candidate, target, symptom)

    if not predicate(failure.program):
        return None
    reducer = Reducer(failure.program, predicate)
    smallest = reducer.run()
    trial: Trial = run_trial(Case.of(smallest), target)
    violation = trial.judgement.violations[0]
    found = signature(symptom, smallest)
    left = (*trial.eager.outputs, *trial.eager.inputs)
    exact = all(map(trial.trace.exact, left))
    return Reduced(
        found, violation, smallest, failure.program, reducer.tried, reducer.accepted, exact
    )


class Blame:
    """A file that holds the index of the program in work, readable after the process that wrote it has died."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:  # noqa: PTH123 - mmap wants the descriptor
            self._memory = mmap.mmap(file.fileno(), 8)

    def __call__(self, index: int) -> None:
        """Note that this program is about to run."""
        self._memory[:8] = (index + 1).to_bytes(8, "little")

    @staticmethod
    def create(path: str) -> None:
        """Make the file, saying that no program has run."""
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(bytes(8))

    @staticmethod
    def read(path: str) -> int | None:
        """The index noted last, None if there is none."""
        with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
            noted = int.from_bytes(file.read(8), "little")
            return noted - 1 if noted else None
        return None
