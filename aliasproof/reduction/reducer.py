"""`Reducer`: from a failing program to a smaller one that fails in the same way."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from aliasproof.ir.program import Instruction, Program, Ref
from aliasproof.ir.validation import definitions, first_defect
from aliasproof.reduction.edits import is_simpler, simplicity, tidy_versions
from aliasproof.reduction.input_steps import (
    drop_dimensions,
    drop_inputs,
    plain_values,
    separate_storages,
    settle_inputs,
    shrink_sizes,
    simplify_dtypes,
    simplify_fill,
    simplify_layouts,
    simplify_seed,
    simplify_values,
)
from aliasproof.reduction.instruction_steps import (
    cut_head,
    cut_tail,
    drop_arguments,
    drop_instructions,
    drop_outputs,
    drop_result_names,
    enlarge_empty_results,
    keep_neighbourhood,
    keep_window,
    plain_gradients,
    results_to_inputs,
    rewire_uses,
    simplify_constants,
    simplify_ops,
    slice_outputs,
)

# --- steps ----------------------------------------------------------------------------------------
#
# The steps of the reducer, as a table.
#
# A step enumerates candidates: programs that are simpler than the given one in one respect. It
# need not know whether a candidate makes sense, since the reducer validates it and asks the
# predicate. So a step may be bold. It enumerates large changes before small ones, and each
# position in the same fraction of the program, since the reducer goes on at the position of its
# last success.


ReductionStep: TypeAlias = Callable[[Program], Iterator[Program]]
StepGroups: TypeAlias = tuple[tuple[ReductionStep, ...], ...]

# In the order in which they are tried. What removes most comes first, so that the later steps,
# which have many candidates, work on a short program.
HALVES: tuple[ReductionStep, ...] = (keep_window,)
FEWER_INSTRUCTIONS: tuple[ReductionStep, ...] = (
    plain_values,
    settle_inputs,
    cut_tail,
    slice_outputs,
    keep_neighbourhood,
    cut_head,
    drop_instructions,
    results_to_inputs,
)
PLAINER_PARTS: tuple[ReductionStep, ...] = (
    drop_outputs,
    drop_inputs,
    separate_storages,
    drop_result_names,
    plain_gradients,
    simplify_ops,
    drop_arguments,
    simplify_dtypes,
    drop_dimensions,
    shrink_sizes,
    simplify_layouts,
    enlarge_empty_results,
    simplify_constants,
    rewire_uses,
    simplify_fill,
    simplify_values,
    simplify_seed,
)
# Each group is repeated until it changes nothing, before the next one begins.
GROUPS: StepGroups = (HALVES, FEWER_INSTRUCTIONS, PLAINER_PARTS)
STEPS: tuple[ReductionStep, ...] = HALVES + FEWER_INSTRUCTIONS + PLAINER_PARTS


def write_at_the_end(program: Program) -> Iterator[Program]:
    """Write to one value, and return the others. An alias too many makes one of them wrong.

    The program gets longer, and what is wrong easier to see.
    """
    names = [name for _, name in definitions(program)]
    for name in names:
        write = Instruction("aten.add_.Scalar", (Ref(name), 1))
        outputs = tuple(dict.fromkeys((*program.outputs, *names)))
        yield replace(program, instructions=(*program.instructions, write), outputs=outputs)


# What may turn a failure into a better one. These programs are not simpler.
BETTER: tuple[ReductionStep, ...] = (write_at_the_end,)


# --- reducer --------------------------------------------------------------------------------------


# Candidates tried in one reduction: far above what a fixpoint needs, a bound against surprises.
MOST_CANDIDATES = 2000

# 0 for a program that does not fail as the first one. Above 0, a larger grade is a better failure.
Predicate: TypeAlias = Callable[[Program], int]
# Gives the answers of a predicate for candidates, in their order. It may ask ahead.
Evaluate: TypeAlias = Callable[[Predicate, Iterable[Program]], Generator[int, None, None]]


def one_by_one(predicate: Predicate, candidates: Iterable[Program]) -> Generator[int, None, None]:
    """Ask about each candidate when its answer is wanted."""
    for candidate in candidates:
        yield predicate(candidate)


def ahead(executor: Executor, count: int) -> Evaluate:
    """Ask about `count` candidates at a time in an executor, and take the answers in order.

    The result is that of a sequential reduction: each answer is a function of its candidate, and
    the first success in the order of the candidates decides. What was asked ahead is given up.
    """

    def evaluate(predicate: Predicate, candidates: Iterable[Program]) -> Generator[int, None, None]:
        waiting: deque[Future[int]] = deque()
        source = iter(candidates)
        try:
            while True:
                while len(waiting) < count:
                    candidate = next(source, None)
                    if candidate is None:
                        break
                    waiting.append(executor.submit(predicate, candidate))
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


class Offer(NamedTuple):
    """A candidate that is new, well formed and simpler than `current`, and where it was found."""

    place: Place
    step: str
    candidate: Program


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
class Reducer(ReductionCost):
    """Makes `current` simpler as long as `predicate(current)` holds. Counts what it tried.

    The reducer is greedy. Steps (`aliasproof.reduction.reducer`) enumerate candidates and know
    nothing else. A candidate becomes `current` if it was not rejected before, it is well formed, it
    is simpler by `simplicity`, and the predicate holds for it. Its grade must not be below that of
    `current`: a predicate may give a better failure a larger number than 1. No step can break these
    properties:

    - *Soundness*. `current` always satisfies the predicate. That a candidate is defined in eager,
      and fails in the same way as the first program, is the predicate's matter.
    - *Progress*. Each accepted candidate is simpler, or it has a larger grade, of which there are
      few. The order is well-founded. So a reduction ends if each step ends, and `MOST_CANDIDATES`
      bounds how often it asks the predicate.
    - *Better failures*. At a fixpoint, while the grade is below `best_grade`, the steps in `BETTER`
      offer programs that are not simpler. One with a larger grade is accepted, and reduced in turn.
    - *Determinism*. Nothing is random, and steps depend on `current` alone. The same program with
      the same predicate reduces to the same result, with the same counts. That holds for each
      `evaluate`: answers are taken in the order of the candidates, whoever computed them.
    - *Uses*. An input that no instruction uses is gone. If the failure needs it, because it shares
      a storage, it gets a use. Otherwise Dynamo would drop it, and the failure with it.
    - *Local minimum*. The result is a fixpoint: no candidate of any step is acceptable (unless
      `MOST_CANDIDATES` ended the search). A simpler failing program can still exist.

    What makes it fast is the order of the questions:

    - *Halves first*. The steps that remove instructions offer halves of the program before
      quarters, and quarters before single instructions: of the tail, of what the outputs depend on,
      of the head, and of the rest. So a program of 200 instructions is short after a few questions.
    - *Large before small*. The first group of steps removes instructions. The second group, which
      has many candidates per instruction, works on what is left.
    - *No restart*. After a success, a step goes on at the same position in the enumeration for the
      new program. What lies before was just rejected, and one more edit seldom changes that. Since
      the steps enumerate by halves, a position is a fraction of the program, and means the same in
      a shorter one. What this misses is found in the next round, since rounds repeat until one
      changes nothing.
    - *Adaptivity*. After two successes in a row it goes back, and twice as far after each further
      one: to larger changes, or to neighbours that could not go before.
    - *No question twice*. Programs are compared with canonical names.
    """

    current: Program
    predicate: Predicate
    evaluate: Evaluate = one_by_one
    grade: int = 1
    best_grade: int = 1
    _rejected: set[Program] = field(default_factory=set)

    def run(self, groups: StepGroups = GROUPS) -> Program:
        """Reduce to a fixpoint of all steps and return the result with canonical names."""
        before = None
        # A success of a late group can make an earlier one succeed again, so all are repeated.
        while before != self.current:
            before = self.current
            for group in groups:
                self._fixate(group)
            if self.grade < self.best_grade:
                self._next_success(BETTER, Place(0, 0), better=True)
        return self.current.renamed()

    def _fixate(self, steps: tuple[ReductionStep, ...]) -> None:
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
        self, steps: tuple[ReductionStep, ...], start: Place, *, better: bool = False
    ) -> tuple[Place, int] | None:
        """Ask about the candidates from a place on, until one is accepted.

        If `better`, only a larger grade is accepted, of a candidate that need not be simpler.
        Returns its place, and how many were asked about. None at the end of the last step, or if
        the predicate was asked often enough.
        """
        if self.tried >= MOST_CANDIDATES:
            return None
        before, since = self.tried, time.perf_counter()
        offers: deque[Offer] = deque()

        def candidates() -> Iterator[Program]:
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
                if self.tried >= MOST_CANDIDATES:
                    return None
        return None

    def _take(self, offer: Offer, grade: int, seconds: float, *, better: bool) -> bool:
        """Note the answer about an offer. True if the candidate is accepted."""
        accepted = grade >= self.grade + better
        self.note(offer.step, seconds, accepted=accepted)
        if accepted:
            self.current, self.grade = offer.candidate, grade
        else:
            self._rejected.add(offer.candidate.renamed())
        return accepted

    def _offers(
        self, steps: tuple[ReductionStep, ...], start: Place, *, better: bool
    ) -> Iterator[Offer]:
        """What the steps offer from a place on, each program once."""
        key, offered = simplicity(self.current), set()
        for index, step in enumerate(steps[start.step :], start.step):
            skipped = start.candidate if index == start.step else 0
            candidates = (tidy for raw in step(self.current) for tidy in tidy_versions(raw))
            rest = itertools.islice(candidates, skipped, None)
            for position, candidate in enumerate(rest, skipped):
                if first_defect(candidate) is not None:
                    continue
                canonical = candidate.renamed()
                # What was rejected once stays rejected, since `current` only becomes simpler.
                if canonical in offered or canonical in self._rejected:
                    continue
                offered.add(canonical)
                if better or is_simpler(candidate, key):
                    yield Offer(Place(index, position), step.__name__, candidate)
