"""Lemmas: steps of overlap predicates, proved by z3 for all sizes, strides and offsets.

A lemma says: "where these assumptions hold, that is impossible". An example: "where the last
element of one view is before the first of the other, no byte is in both". z3 searches a
counterexample. A proof does not cover numbers of dimensions that the lemma does not name, nor
integers that do not fit into 64 bits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import z3

Number: TypeAlias = Any  # a z3 integer expression
Formula: TypeAlias = Any  # a z3 Boolean expression
Scope: TypeAlias = Callable[[str], Number]  # gives the z3 unknown of a name


def named(scope: Scope, names: str) -> list[Number]:
    """The numbers of these names, which spaces separate."""
    return [scope(name) for name in names.split()]


@dataclass(frozen=True, slots=True)
class Statement:
    """Where all `assumptions` hold, the `counterexample` must be impossible."""

    assumptions: Sequence[Formula]
    counterexample: Sequence[Formula]


State: TypeAlias = Callable[[Scope], Statement]
# A step of a predicate: its cases by name, each a question to z3. It is proved if all cases are.
# They differ in numbers of dimensions, or in the direction of an equivalence.
Lemma: TypeAlias = Mapping[str, State]


def counterexample(state: State) -> dict[str, int] | None:
    """The numbers of a counterexample by name; None if the statement is proved.

    Each statement has a z3 context of its own, so that no question depends on another. Raises
    `AssertionError` if the assumptions cannot hold: then "no counterexample" says nothing.
    """
    context, unknowns = z3.Context(), dict[str, Any]()

    def scope(name: str) -> Number:
        return unknowns.setdefault(name, z3.Int(name, context))

    def model_of(conditions: Sequence[Formula]) -> z3.ModelRef | None:
        # A fresh solver chooses its tactics by the conditions. One that is asked again uses a
        # weaker general tactic.
        solver = z3.Solver(ctx=context)
        solver.set("timeout", 10_000)  # milliseconds
        solver.add(*conditions)
        verdict = solver.check()
        assert verdict != z3.unknown, solver.reason_unknown()
        return solver.model() if verdict == z3.sat else None

    statement = state(scope)
    assert model_of(statement.assumptions) is not None, "the assumptions cannot hold"
    model = model_of((*statement.assumptions, *statement.counterexample))
    if model is None:
        return None
    # Completion: a name that no condition mentions gets a value, too.
    return {
        name: model.eval(unknown, model_completion=True).as_long()
        for name, unknown in unknowns.items()
    }
