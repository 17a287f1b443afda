"""`Reducer`: reduces a failing program to a smaller one that fails in the same way."""

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
# Enumerates changes that may make a program smaller, in the form that `Problem.candidate` takes.
Step: TypeAlias = Callable[[T], Iterable[Any]]
# 0 if a program does not fail as the first one. Above 0, a larger grade is a better failure.
Predicate: TypeAlias = Callable[[T], int]
# Yields a predicate's grades of candidates, in their order. It may compute them ahead.
Evaluate: TypeAlias = Callable[[Predicate[T], Iterable[T]], Generator[int, None, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Generic[T]):
    """How programs of one language are reduced.

    Each group of steps is repeated until it changes nothing, before the next one begins. The steps
    in `better` may turn a failure into a better one; their programs need not be smaller.
    `candidate` applies an offer of a step to a program; None if the result is not well formed.
    Programs are equal if their `canonical` forms are. `is_smaller` compares a program with the
    `size` of another; the order is well-founded, or allows equal sizes. After a candidate is
    rejected, others with the same `change` of the program are skipped, until nothing else helps.
    `most` bounds the number of checked candidates.
    """

    groups: tuple[tuple[Step[T], ...], ...]
    better: tuple[Step[T], ...] = ()
    candidate: Callable[[T, Any], T | None]
    size: Callable[[T], Any]
    is_smaller: Callable[[T, Any], bool]
    canonical: Callable[[T], T] = lambda program: program
    change: Callable[[T, T], Hashable] | None = None
    most: int = 2000  # far above what a fixpoint needs


def one_by_one(predicate: Predicate[T], candidates: Iterable[T]) -> Generator[int, None, None]:
    """Check each candidate when its grade is requested."""
    for candidate in candidates:
        yield predicate(candidate)


def evaluate_ahead(executor: Executor, count: int) -> Evaluate[Any]:
    """Check `count` candidates at a time in an executor, and yield the grades in order.

    The result equals that of a sequential reduction: each grade is a function of its candidate, and
    the first success in the order of the candidates decides. Later checks are cancelled.
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
    """Cost and yield of one step: checked and accepted candidates, and seconds."""

    candidates: int = 0
    accepted: int = 0
    seconds: float = field(default=0.0, compare=False)  # equal reductions take unequal times


class Place(NamedTuple):
    """A position in the enumeration of a group of steps."""

    step: int
    candidate: int


@dataclass(frozen=True, slots=True)
class Offer(Generic[T]):
    """A candidate that is new, well formed and simpler than `current`, and its place."""

    place: Place
    step: str
    candidate: T
    change: Hashable


@dataclass(slots=True)
class Reducer(Generic[T]):
    """Makes `current` simpler as long as `predicate(current)` holds. Counts the candidates.

    The reducer is greedy. The steps of a `Problem` only enumerate candidates. A candidate becomes
    `current` if it was not checked before, is well formed, is smaller in the order of the problem,
    and the predicate holds for it. Its grade must not be below that of `current`: a predicate may
    give a better failure a larger number than 1. No step can break these properties:

    - *Soundness*. `current` always satisfies the predicate. The predicate must ensure that a
      candidate is defined in eager, and fails in the same way as the first program.
    - *Progress*. Each accepted candidate is smaller, or it has a larger grade, of which there are
      few, or it is of equal size and new. So a reduction ends if each step ends, and `most` bounds
      the calls of the predicate.
    - *Better failures*. At a fixpoint, while the grade is below `best_grade`, the steps in `better`
      offer programs that are not smaller. One with a larger grade is accepted, and reduced in turn.
    - *Determinism*. Nothing is random, and steps depend only on `current`. The same program with
      the same predicate reduces to the same result, with the same counts. That holds for each
      `evaluate`: grades are used in the order of the candidates, whichever thread computed them.
    - *Local minimum*. The result is a fixpoint: no candidate of any step is acceptable (unless
      `most` or `is_over` ended the search). A smaller failing program can still exist.

    The order of the checks makes it fast:

    - *Large before small*. The steps that remove most come first: deleting steps offer halves
      before quarters, and quarters before single instructions or statements. So a program of 200
      instructions is short after a few checks, before the steps with many candidates begin.
    - *No restart*. After a success, a step continues at the same position in the enumeration for
      the new program. Earlier candidates were just rejected, and one more edit seldom changes that.
      Since the steps enumerate by halves, a position is a fraction of the program, and means the
      same in a shorter one. Missed candidates are found in the next round, since rounds repeat
      until one changes nothing.
    - *Adaptivity*. After two successes in a row, it goes back, and twice as far after each further
      success: to larger changes, or to neighbours that could not be removed before.
    - *No repeated check*. Programs are compared in their canonical form.
    """

    problem: Problem[T]
    current: T
    predicate: Predicate[T]
    evaluate: Evaluate[T] = one_by_one
    grade: int = 1
    best_grade: int = 1
    is_over: Callable[[], bool] = lambda: False  # whether to take the smallest so far
    passes: dict[str, StepStatistics] = field(default_factory=dict)
    step: str = ""  # the step whose candidate was checked last
    _asked: set[T] = field(default_factory=set)
    _rejected_changes: set[Hashable] = field(default_factory=set)

    @property
    def tried(self) -> int:
        """How many candidates were checked."""
        return sum(spent.candidates for spent in self.passes.values())

    @property
    def accepted(self) -> int:
        """How many candidates became `current`."""
        return sum(spent.accepted for spent in self.passes.values())

    def _is_at_end(self) -> bool:
        return self.tried >= self.problem.most or self.is_over()

    def run(self) -> T:
        """Reduce to a fixpoint of all steps and return the result in its canonical form."""
        self._asked.add(self.problem.canonical(self.current))
        before = None
        # A success of a late group can enable an earlier one, so all groups are repeated.
        while before != self.current or self._rejected_changes:
            if before == self.current:  # parts that were needed then may not be needed now
                self._rejected_changes.clear()
            before = self.current
            for group in self.problem.groups:
                self._fixate(group)
            if self.grade < self.best_grade:
                self._next_success(self.problem.better, Place(0, 0), better=True)
            if self._is_at_end():
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
        """Check the candidates from a place on, until one is accepted.

        If `better`, only a larger grade is accepted, and the candidate need not be smaller. Returns
        the place of the accepted one, and how many were checked. None at the end of the last step,
        or if the search is to end.
        """
        if self._is_at_end():
            return None
        before, since = self.tried, time.perf_counter()
        offers: deque[Offer[T]] = deque()

        def candidates() -> Iterator[T]:
            for offer in self._offers(steps, start, better=better):
                offers.append(offer)
                yield offer.candidate

        # Closed at the first success: a parallel `evaluate` then cancels the checks ahead.
        with contextlib.closing(self.evaluate(self.predicate, candidates())) as grades:
            for grade in grades:
                offer, now = offers.popleft(), time.perf_counter()
                accepted = grade >= self.grade + better
                self.step = offer.step
                spent = self.passes.setdefault(offer.step, StepStatistics())
                spent.candidates += 1
                spent.accepted += accepted
                spent.seconds += now - since
                since = now
                # A rejected candidate stays rejected, since `current` only becomes smaller.
                self._asked.add(self.problem.canonical(offer.candidate))
                if accepted:
                    self.current, self.grade = offer.candidate, grade
                    return offer.place, self.tried - before
                if offer.change is not None:
                    self._rejected_changes.add(offer.change)
                if self._is_at_end():
                    return None
        return None

    def _offers(
        self, steps: tuple[Step[T], ...], start: Place, *, better: bool
    ) -> Iterator[Offer[T]]:
        """The candidates of the steps from a place on, each program once."""
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
