"""Lemmas: steps of overlap predicates, proved or refuted by z3 for all sizes, strides and offsets.

A lemma says: "where these assumptions hold, that is impossible". An example: "where the last
element of one view is before the first of the other, no byte is in both". z3 searches a
counterexample. There are three answers, and none replaces another:

- proved: there is no counterexample;
- refuted: here is one;
- vacuous: the assumptions cannot hold, so nothing was shown. The branch of a case split is dead.

A proof does not cover numbers of dimensions that the lemma does not name, nor integers that do not
fit into 64 bits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, TypeAlias

import z3

from tests.lemmas.lemma_formulas import Formula, Scope, SymbolicView


@dataclass(frozen=True, slots=True)
class Statement:
    """Where all `assumptions` hold, the `counterexample` must be impossible.

    `views` are the views that it mentions, if any.
    """

    assumptions: Sequence[Formula]
    counterexample: Sequence[Formula]
    views: tuple[SymbolicView, ...] = ()


State: TypeAlias = Callable[[Scope], Statement]
# A step of a predicate: its cases by name, each a question to z3. It is proved if all cases are.
# They differ in numbers of dimensions, in item sizes, or in the direction of an equivalence.
Lemma: TypeAlias = Mapping[str, State]


@dataclass(frozen=True, slots=True)
class Refuted:
    """The views of a counterexample, of plain integers."""

    case: str
    views: tuple[SymbolicView, ...]


Answer: TypeAlias = Literal["proved", "vacuous"] | Refuted


def prove(lemma: Lemma) -> Answer:
    """Ask z3 about all cases in order.

    A refuted case refutes the lemma. Else a vacuous one makes it vacuous.
    """
    answer: Answer = "proved"
    for case, state in lemma.items():
        unknowns = _Unknowns()
        statement = state(unknowns)
        refuting = (*statement.assumptions, *statement.counterexample)
        # First the assumptions alone: if they cannot hold, "no counterexample" says nothing.
        if unknowns.ask(statement.assumptions) is None:
            answer = "vacuous"
        elif unknowns.ask(refuting) is not None:
            values = unknowns.smallest(refuting)
            # The same function as z3 read, now with plain integers for names.
            found = state(values.__getitem__)
            assert all((*found.assumptions, *found.counterexample)), (case, values)
            return Refuted(case, found.views)
    return answer


class _Unknowns:
    """The names of one statement as z3 integers.

    Each statement has a z3 context of its own, so that no question depends on another.
    """

    def __init__(self) -> None:
        self.context = z3.Context()
        self.by_name: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        return self.by_name.setdefault(name, z3.Int(name, self.context))

    def ask(self, conditions: Sequence[Formula]) -> dict[str, int] | None:
        """Values that satisfy the conditions, or None if there are none."""
        # A fresh solver chooses its tactics by the conditions. One that is asked again uses a
        # weaker general tactic.
        solver = z3.Solver(ctx=self.context)
        solver.set("timeout", 10_000)  # milliseconds
        solver.add(*conditions)
        verdict = solver.check()
        assert verdict != z3.unknown, solver.reason_unknown()
        if verdict == z3.unsat:
            return None
        model = solver.model()
        # Completion: a name that no condition mentions gets a value, too.
        return {
            name: int(model.eval(unknown, model_completion=True).as_long())
            for name, unknown in self.by_name.items()
        }

    def smallest(self, conditions: Sequence[Formula]) -> dict[str, int]:
        """Values with the least sum of absolute values: easier to read, small tensors."""
        total = z3.Sum(*(z3.If(each >= 0, each, -each) for each in self.by_name.values()))
        found = (self.ask((*conditions, total <= bound)) for bound in count())
        return next(values for values in found if values is not None)
