"""Questions to z3 about sizes: the encoding of the assumptions, and a search for sizes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from aliasproof.oracles.proofs.assumptions import Assumptions
from aliasproof.oracles.proofs.size_encoding import SizeEncoding, Untranslatable
from aliasproof.oracles.proofs.size_expressions import SizeValues
from aliasproof.oracles.smt import Disjoint, Session, Unknown

MOST_ROUNDS = 64  # sizes that z3 may propose in one search


def encoding_of(assumptions: Assumptions) -> SizeEncoding:
    """The assumptions for z3.

    A condition that cannot be translated is left out. Then a proof covers more sizes than asked
    for, and a refutation is checked against all conditions anyway.
    """
    encoding = SizeEncoding(
        Session.here("sizes").context,
        {str(symbol): bounds for symbol, bounds in assumptions.ranges.items()},
    )
    for condition in assumptions.conditions:
        with contextlib.suppress(Untranslatable):
            encoding.facts.append(encoding.condition(condition))
    return encoding


def ask(
    conditions: Sequence[Any], unknowns: Sequence[Any], deadline: float
) -> tuple[int, ...] | Disjoint | Unknown:
    """The values of the unknowns in a model of the conditions; `Disjoint` if there is none."""
    # At least one millisecond, since z3 takes a limit of zero for no limit.
    milliseconds_left = max(1, int(1e3 * (deadline - time.perf_counter())))
    return Session.here("sizes").ask(conditions, unknowns, milliseconds_left)


@dataclass(slots=True)
class SizeSearch:
    """A search for sizes that satisfy assumptions and the `wanted` conditions, products included.

    After the search, either `exhausted` is true: there are no other sizes. Or `reason` says why it
    ended.
    """

    encoding: SizeEncoding
    wanted: Sequence[Any]
    assumptions: Assumptions
    deadline: float
    exhausted: bool = False
    reason: str = ""

    def solutions(self) -> Iterator[SizeValues]:
        """Sizes, each once. They satisfy all assumptions, also those that z3 is not told."""
        symbols = list(self.assumptions.ranges)
        unknowns = [self.encoding.unknown(str(symbol)) for symbol in symbols]
        # The equations make products exact, so a solution is one of the real question.
        conditions = [*self.encoding.facts, *self.encoding.equations, *self.wanted]
        for _ in range(MOST_ROUNDS):
            answer = ask(conditions, unknowns, self.deadline)
            if not isinstance(answer, tuple):
                self.exhausted = isinstance(answer, Disjoint)
                self.reason = answer.reason if isinstance(answer, Unknown) else ""
                return
            sizes = dict(zip(symbols, answer, strict=True))
            # z3 was not told the conditions that cannot be translated.
            if self.assumptions.allow(sizes):
                yield sizes
            # The next model must differ from this one in some size.
            others = [unknown != value for unknown, value in zip(unknowns, answer, strict=True)]
            conditions.append(z3.Or(z3.BoolVal(False, self.encoding.context), *others))
        self.reason = f"z3 proposed {MOST_ROUNDS} sizes without success"
