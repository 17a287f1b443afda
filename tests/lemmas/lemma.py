"""Lemmas: steps of overlap predicates, proved or refuted by z3 for all sizes, strides and offsets.

A lemma says: "where these assumptions hold, that is impossible". An example: "where the last
element of one view is before the first of the other, no byte is in both". z3 searches a
counterexample. There are four answers, and none replaces another:

- proved: there is no counterexample;
- refuted: here is one;
- unknown: z3 gave up;
- vacuous: the assumptions cannot hold, so nothing was shown. The branch of a case split is dead.

A proof does not cover numbers of dimensions that the lemma does not name, nor integers that do not
fit into 64 bits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import z3

from aliasproof.ir.errors import InternalError
from tests.lemmas.lemma_formulas import Formula, Scope, SymbolicView

# Milliseconds for each search for a smaller counterexample. The first one is as right as a smaller
# one, which is only easier to read.
_SMALLER_MS = 1000


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


# --- answers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proved:
    """There is no counterexample, and the assumptions can hold."""


@dataclass(frozen=True, slots=True)
class Refuted:
    """A counterexample: the value of each name, and the views that these values give."""

    case: str
    values: Mapping[str, int]
    views: tuple[SymbolicView, ...] = ()


@dataclass(frozen=True, slots=True)
class Undecided:
    """z3 gave up on a case; `reason` is in its own words."""

    case: str
    reason: str


@dataclass(frozen=True, slots=True)
class Vacuous:
    """The assumptions of a case contradict each other."""

    case: str


Answer: TypeAlias = Proved | Refuted | Undecided | Vacuous


# --- proofs ---------------------------------------------------------------------------------------


def prove(lemma: Lemma, limit_ms: int = 10_000) -> Answer:
    """Ask z3 about all cases in order, with `limit_ms` milliseconds for each question.

    A refuted case refutes the lemma. Else an unknown case makes it unknown, else a vacuous one
    vacuous. Equal lemmas get equal answers.

    Raises:
        InternalError: the counterexample of z3 is not one.

    """
    answers: list[Answer] = []
    for name, state in lemma.items():
        answers.append(_answer(name, state, limit_ms))
        if isinstance(answers[-1], Refuted):
            break
    # The classes in order of weight: the first that occurs among the cases wins.
    weights = (Refuted, Undecided, Vacuous, Proved)
    return min(answers, key=lambda answer: weights.index(type(answer)))


def is_counterexample(state: State, values: Mapping[str, int]) -> bool:
    """Whether these values refute the statement, by plain arithmetic."""
    # The same function as z3 read, now with plain integers for names.
    statement = state(values.__getitem__)
    return all((*statement.assumptions, *statement.counterexample))


def _answer(case: str, state: State, limit_ms: int) -> Answer:
    unknowns = _Unknowns()
    statement = state(unknowns)
    # First the assumptions alone: if they cannot hold, "no counterexample" says nothing.
    possible = unknowns.ask(statement.assumptions, limit_ms)
    if possible is None:
        return Vacuous(case)
    refuting = (*statement.assumptions, *statement.counterexample)
    model = possible if isinstance(possible, str) else unknowns.ask(refuting, limit_ms)
    if model is None:
        return Proved()
    if isinstance(model, str):
        return Undecided(case, model)
    values = unknowns.smallest(refuting, model, limit_ms)
    if not is_counterexample(state, values):
        raise InternalError(
            f"z3 gave a wrong counterexample to '{case}', please send us this line: {values}"
        )
    return Refuted(case, values, state(values.__getitem__).views)


class _Unknowns:
    """The names of one statement as z3 integers.

    Each statement has a z3 context of its own, so that no question depends on another.
    """

    def __init__(self) -> None:
        self.context = z3.Context()
        self.by_name: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        return self.by_name.setdefault(name, z3.Int(name, self.context))

    def ask(self, conditions: Sequence[Formula], limit_ms: int) -> dict[str, int] | str | None:
        """Values that satisfy the conditions, None if there are none, or why z3 does not know."""
        # A fresh solver chooses its tactics by the conditions. One that is asked again uses a
        # weaker general tactic.
        solver = z3.Solver(ctx=self.context)
        solver.set("timeout", limit_ms)
        solver.add(*conditions)
        verdict = solver.check()
        if verdict == z3.unsat:
            return None
        if verdict == z3.unknown:
            return f"z3 gave up, with a limit of {limit_ms} ms: {solver.reason_unknown()}"
        model = solver.model()
        # Completion: a name that no condition mentions gets a value, too.
        return {
            name: int(model.eval(unknown, model_completion=True).as_long())
            for name, unknown in self.by_name.items()
        }

    def smallest(
        self, conditions: Sequence[Formula], values: dict[str, int], limit_ms: int
    ) -> dict[str, int]:
        """Values with a smaller sum that satisfy the conditions: easier to read, small tensors."""
        total = z3.Sum(
            *(z3.If(unknown >= 0, unknown, -unknown) for unknown in self.by_name.values())
        )
        # A binary search for the least sum of absolute values.
        least = 0
        while least < (most := sum(map(abs, values.values()))):
            middle = (least + most) // 2
            smaller = self.ask((*conditions, total <= middle), min(limit_ms, _SMALLER_MS))
            if isinstance(smaller, dict):
                values = smaller
            else:  # none, or z3 gave up: go on above
                least = middle + 1
        return values
