"""The reducer: greedy to a fixpoint over `consider(candidate)`.

Passes (`reduction.steps`) enumerate candidates and know nothing else. `Reducer.consider` alone
decides: a candidate becomes `current` if it is simpler by `simplicity`, has not been tried, and the
predicate holds for it. So every pass keeps the same law: the program stays well defined and fails
in the same way, and the order is well-founded, so it ends. Nothing is random: the same program
reduces to the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from programs.errors import UserError
from programs.program import Program
from programs.validation import validate
from reduction.simplicity import simplicity
from reduction.steps import STEPS, ReductionStep

MOST_CANDIDATES = 2000  # tried in one reduction; far above what the fixpoint needs, so only a bound against surprises


@dataclass(slots=True)
class Reducer:
    """Makes `current` simpler while `predicate(current)` holds. Counts what was tried."""

    current: Program
    predicate: Callable[[Program], bool]
    tried: int = 0
    accepted: int = 0
    accepted_by: dict[str, int] = field(default_factory=dict)
    _seen: set[Program] = field(default_factory=set)

    def run(self, passes: tuple[ReductionStep, ...] = STEPS) -> Program:
        """Reduce to a fixpoint of all passes and return the result with canonical names."""
        before = None
        while before != self.current and self.tried < MOST_CANDIDATES:
            before = self.current
            for each in passes:
                self._exhaust(each)
        return self.current.renamed()

    def _exhaust(self, one_pass: ReductionStep) -> None:
        """Offer the candidates of one pass until none is taken any more."""
        taken = True
        while taken:
            taken = False
            for candidate in one_pass(self.current):
                if self.tried >= MOST_CANDIDATES:
                    return
                if self.consider(candidate):
                    self.accepted_by[one_pass.__name__] = (
                        self.accepted_by.get(one_pass.__name__, 0) + 1
                    )
                    taken = True
                    break

    def consider(self, candidate: Program) -> bool:
        """Take the candidate if it is simpler, new, well formed and still fails."""
        if candidate in self._seen:
            return False
        self._seen.add(candidate)
        try:
            validate(candidate)
        except UserError:
            return False
        if simplicity(candidate) >= simplicity(self.current):
            return False
        self.tried += 1
        if not self.predicate(candidate):
            return False
        self.current = candidate
        self.accepted += 1
        return True
