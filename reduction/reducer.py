"""`Reducer`: from a failing program to a smaller one that fails in the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from programs.errors import UserError
from programs.program import Program
from programs.validation import validate
from reduction.simplicity import simplicity
from reduction.steps import STEPS, ReductionStep

# Candidates tried in one reduction: far above what a fixpoint needs, a bound against surprises.
MOST_CANDIDATES = 2000


@dataclass(slots=True)
class Reducer:
    """Makes `current` simpler as long as `predicate(current)` holds. Counts what it tried.

    The reducer is greedy. Steps (`reduction.steps`) enumerate candidates and know nothing else.
    `consider` alone decides: a candidate becomes `current` if nobody has offered it before, it is
    well formed, it is simpler by `simplicity`, and the predicate holds for it. So no step can break
    these properties:

    - *Soundness*. `current` always satisfies the predicate. That a candidate is defined in eager,
      and fails in the same way as the first program, is the predicate's matter.
    - *Progress*. Each accepted candidate is simpler, and the order is well-founded. So a reduction
      ends if each step ends, and `MOST_CANDIDATES` bounds how often it asks the predicate.
    - *Determinism*. Nothing is random, and steps depend on `current` alone. The same program with
      the same predicate reduces to the same result, with the same counts.
    - *Local minimum*. The result is a fixpoint: no candidate of any step is acceptable (unless
      `MOST_CANDIDATES` ended the search). A simpler failing program can still exist.

    Adaptivity is limited. The steps come in a fixed order, from those that remove most. Within
    `drop_instructions`, candidates go from half of the program down to one instruction. After each
    success, the step starts again at its first candidate: `current` is a new program, so positions
    in the old enumeration mean nothing in the new one. `consider` makes the restart cheap, since it
    never asks the predicate about the same candidate twice, but it still enumerates them. A reducer
    that continues at the position of its last success would enumerate less.
    """

    current: Program
    predicate: Callable[[Program], bool]
    tried: int = 0
    accepted: int = 0
    accepted_by: dict[str, int] = field(default_factory=dict)
    _seen: set[Program] = field(default_factory=set)

    def run(self, steps: tuple[ReductionStep, ...] = STEPS) -> Program:
        """Reduce to a fixpoint of all steps and return the result with canonical names."""
        before = None
        # A success of a late step can make an earlier one succeed again, so all steps are repeated.
        while before != self.current and self.tried < MOST_CANDIDATES:
            before = self.current
            for step in steps:
                self._exhaust(step)
        return self.current.renamed()

    def _exhaust(self, step: ReductionStep) -> None:
        """Consider the candidates of one step until none is accepted any more."""
        accepted = True
        while accepted:
            accepted = False
            for candidate in step(self.current):
                if self.tried >= MOST_CANDIDATES:
                    return
                if self.consider(candidate):
                    name = step.__name__
                    self.accepted_by[name] = self.accepted_by.get(name, 0) + 1
                    accepted = True
                    break  # the step must enumerate the candidates of the new `current`

    def consider(self, candidate: Program) -> bool:
        """Accept the candidate if it is new, well formed, simpler, and the predicate holds."""
        # What was rejected once stays rejected, since `current` only becomes simpler.
        if candidate in self._seen:
            return False
        self._seen.add(candidate)
        try:
            validate(candidate)
        except UserError:
            return False
        if simplicity(candidate) >= simplicity(self.current):
            return False
        # Only candidates for which the predicate is asked count, since only they cost time.
        self.tried += 1
        if not self.predicate(candidate):
            return False
        self.current = candidate
        self.accepted += 1
        return True
