"""`Reducer`: from a failing program to a smaller one that fails in the same way."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T", bound=Hashable)
# Enumerates what may make a program smaller, as `Problem.candidate` takes it.
Step: TypeAlias = Callable[[T], Iterable[Any]]
# 0 for a program that does not fail as the first one. Above 0, a larger grade is a better failure.
Predicate: TypeAlias = Callable[[T], int]
# Gives the answers of a predicate for candidates, in their order. It may ask ahead.
Evaluate: TypeAlias = Callable[[Predicate[T], Iterable[T]], Generator[int, None, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Generic[T]):
    """How programs of one language are reduced.

    Each group of steps is repeated until it changes nothing, before the next one begins. The steps
    in `better` may turn a failure into a better one; their programs need not be smaller.
    `candidate` is the program that an offer of a step makes of another program, or None if it is
    not well formed. Programs are the same if their `canonical` form is. `is_smaller` compares one
    with the `size` of another; the order is well-founded, or allows equal sizes. If a candidate is
    rejected, others with the same `change` of the program are not asked about either, until nothing
    else helps. `most` bounds the candidates of one reduction.
    """

    groups: tuple[tuple[Step[T], ...], ...]
    better: tuple[Step[T], ...] = ()
    candidate: Callable[[T, Any], T | None]
    size: Callable[[T], Any]
    is_smaller: Callable[[T, Any], bool]
    canonical: Callable[[T], T] = lambda program: program
    change: Callable[[T, T], Hashable] | None = None
    most: int = 2000  # far above what a fixpoint needs, a bound against surprises


def one_by_one(predicate: Predicate[T], candidates: Iterable[T]) -> Generator[int, None, None]:
    """Ask about each candidate when its answer is wanted."""
    for candidate in candidates:
        yield predicate(candidate)


def ahead(executor: Executor, count: int) -> Evaluate[Any]:
    """Ask about `count` candidates at a time in an executor, and take the answers in order.

    The result is that of a sequential reduction: each answer is a function of its candidate, and
    the first success in the order of the candidates decides. What was asked ahead is given up.
    """

    def evaluate(predicate: Predicate[T], candidates: Iterable[T]) -> Generator[int, None, None]:
        waiting: deque[Future[int]] = deque()
        source = iter(candidates)
        try:
            while True:
                further = itertools.islice(source, count - len(waiting))
                waiting.extend(executor.submit(predicate, candidate) for candidate in further)
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    return evaluate


@dataclass(slots=True)
class StepStatistics:
    """What one step cost and gave: candidates that the predicate was asked about, and seconds."""

    candidates: int = 0
    accepted: int = 0
    seconds: float = field(default=0.0, compare=False)  # equal reductions take unequal times


class Place(NamedTuple):
    """A position in the enumeration of a group of steps."""

    step: int
    candidate: int


@dataclass(frozen=True, slots=True)
class Offer(Generic[T]):
    """A candidate that is new, well formed and simpler than `current`, and where it was found."""

    place: Place
    step: str
    candidate: T
    change: Hashable


@dataclass(slots=True, kw_only=True)
class ReductionCost:
    """What the steps of a reduction cost and gave so far."""

    passes: dict[str, StepStatistics] = field(default_factory=dict)
    step: str = ""  # whose candidate was asked about last

    @property
    def tried(self) -> int:
        """How many candidates the predicate was asked about."""
        return sum(spent.candidates for spent in self.passes.values())

    @property
    def accepted(self) -> int:
        """How many candidates became `current`."""
        return sum(spent.accepted for spent in self.passes.values())

    def note(self, step: str, seconds: float, *, accepted: bool) -> None:
        """Count a candidate of a step."""
        self.step = step
        spent = self.passes.setdefault(step, StepStatistics())
        spent.candidates += 1
        spent.accepted += accepted
        spent.seconds += seconds


@dataclass(slots=True)
class Reducer(ReductionCost, Generic[T]):
    """Makes `current` simpler as long as `predicate(current)` holds. Counts what it tried.

    The reducer is greedy. The steps of a `Problem` enumerate candidates and know nothing else. A
    candidate becomes `current` if it was not asked about before, it is well formed, it is smaller
    in the order of the problem, and the predicate holds for it. Its grade must not be below that of
    `current`: a predicate may give a better failure a larger number than 1. No step can break these
    properties:

    - *Soundness*. `current` always satisfies the predicate. That a candidate is defined in eager,
      and fails in the same way as the first program, is the predicate's matter.
    - *Progress*. Each accepted candidate is smaller, or it has a larger grade, of which there are
      few, or it is of equal size and new. So a reduction ends if each step ends, and `most` bounds
      how often it asks the predicate.
    - *Better failures*. At a fixpoint, while the grade is below `best_grade`, the steps in `better`
      offer programs that are not smaller. One with a larger grade is accepted, and reduced in turn.
    - *Determinism*. Nothing is random, and steps depend on `current` alone. The same program with
      the same predicate reduces to the same result, with the same counts. That holds for each
      `evaluate`: answers are taken in the order of the candidates, whoever computed them.
    - *Local minimum*. The result is a fixpoint: no candidate of any step is acceptable (unless
      `most` ended the search). A smaller failing program can still exist.

    What makes it fast is the order of the questions:

    - *Large before small*. What removes most comes first: the steps that delete offer halves before
      quarters, and quarters before single instructions or statements. So a program of 200
      instructions is short after a few questions, and steps with many candidates find it so.
    - *No restart*. After a success, a step goes on at the same position in the enumeration for the
      new program. What comes before was just rejected, and one more edit seldom changes that. Since
      the steps enumerate by halves, a position is a fraction of the program, and means the same in
      a shorter one. What this misses is found in the next round, since rounds repeat until one
      changes nothing.
    - *Adaptivity*. After two successes in a row it goes back, and twice as far after each further
      one: to larger changes, or to neighbours that could not go before.
    - *No question twice*. Programs are compared in their canonical form.
    """

    problem: Problem[T]
    current: T
    predicate: Predicate[T]
    evaluate: Evaluate[T] = one_by_one
    grade: int = 1
    best_grade: int = 1
    _asked: set[T] = field(default_factory=set)
    _rejected_changes: set[Hashable] = field(default_factory=set)

    def run(self) -> T:
        """Reduce to a fixpoint of all steps and return the result in its canonical form."""
        self._asked.add(self.problem.canonical(self.current))
        before = None
        # A success of a late group can make an earlier one succeed again, so all are repeated.
        while before != self.current or self._rejected_changes:
            if before == self.current:  # what was needed then may not be needed now
                self._rejected_changes.clear()
            before = self.current
            for group in self.problem.groups:
                self._fixate(group)
            if self.grade < self.best_grade:
                self._next_success(self.problem.better, Place(0, 0), better=True)
            if self.tried >= self.problem.most:
                break
        return self.problem.canonical(self.current)

    def _fixate(self, steps: tuple[Step[T], ...]) -> None:
        """Repeat the steps of one group until a whole round changes nothing."""
        before = None
        while before != self.current:
            before = self.current
            start, row = Place(0, 0), 0
            while (success := self._next_success(steps, start)) is not None:
                place, asked = success
                row = row + 1 if asked == 1 else 0
                start = place._replace(candidate=max(place.candidate - 2**row + 1, 0))

    def _next_success(
        self, steps: tuple[Step[T], ...], start: Place, *, better: bool = False
    ) -> tuple[Place, int] | None:
        """Ask about the candidates from a place on, until one is accepted.

        If `better`, only a larger grade is accepted, of a candidate that need not be smaller.
        Returns its place, and how many were asked about. None at the end of the last step, or if
        the predicate was asked often enough.
        """
        if self.tried >= self.problem.most:
            return None
        before, since = self.tried, time.perf_counter()
        offers: deque[Offer[T]] = deque()

        def candidates() -> Iterator[T]:
            for offer in self._offers(steps, start, better=better):
                offers.append(offer)
                yield offer.candidate

        # Closed at the first success: a parallel `evaluate` then gives up what it asked ahead.
        with contextlib.closing(self.evaluate(self.predicate, candidates())) as grades:
            for grade in grades:
                offer, now = offers.popleft(), time.perf_counter()
                accepted = self._take(offer, grade, now - since, better=better)
                since = now
                if accepted:
                    return offer.place, self.tried - before
                if self.tried >= self.problem.most:
                    return None
        return None

    def _take(self, offer: Offer[T], grade: int, seconds: float, *, better: bool) -> bool:
        """Note the answer about an offer. True if the candidate is accepted."""
        accepted = grade >= self.grade + better
        self.note(offer.step, seconds, accepted=accepted)
        # What was rejected once stays rejected, since `current` only becomes smaller.
        self._asked.add(self.problem.canonical(offer.candidate))
        if accepted:
            self.current, self.grade = offer.candidate, grade
        elif offer.change is not None:
            self._rejected_changes.add(offer.change)
        return accepted

    def _offers(
        self, steps: tuple[Step[T], ...], start: Place, *, better: bool
    ) -> Iterator[Offer[T]]:
        """What the steps offer from a place on, each program once."""
        problem, current = self.problem, self.current
        size = problem.size(current)
        offered: set[T] = set()
        changes = set(self._rejected_changes)
        for index, step in enumerate(steps[start.step :], start.step):
            skipped = start.candidate if index == start.step else 0
            for position, raw in enumerate(itertools.islice(step(current), skipped, None), skipped):
                candidate = problem.candidate(current, raw)
                if candidate is None:
                    continue
                canonical = problem.canonical(candidate)
                if canonical in offered or canonical in self._asked:
                    continue
                offered.add(canonical)
                if not (better or problem.is_smaller(candidate, size)):
                    continue
                change = problem.change and problem.change(current, candidate)
                if change is not None and change in changes:
                    continue
                changes.add(change)
                yield Offer(Place(index, position), step.__name__, candidate, change)
