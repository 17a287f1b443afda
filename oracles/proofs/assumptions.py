"""The assumptions of a proof: ranges of symbolic sizes, conditions on them, and sample sizes."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]

from aliasproof.oracles.proofs.size_expressions import Expr, SizeValues, evaluate, evaluator

SizeRange: TypeAlias = tuple[int, int | None]  # both ends included; None: no upper bound

MOST_SAMPLES = 12  # a dozen sizes refute most wrong targets, at microseconds each
_DRAWS = 400
_SMALL = 15  # drawn sizes exceed the lower bound by at most this


@dataclass(frozen=True, slots=True)
class Assumptions:
    """For which sizes something is proved: free symbols with their ranges, and conditions on them.

    `equal` maps every other symbol to an expression of the free ones. `samples` are sizes that
    satisfy all assumptions. A short search finds them; there can be none although the assumptions
    are satisfiable.
    """

    ranges: Mapping[Expr, SizeRange]
    conditions: tuple[Expr, ...]
    equal: Mapping[Expr, Expr]
    samples: tuple[SizeValues, ...] = ()
    # The conditions as one compiled function: they are checked for thousands of sizes.
    _values: Callable[..., Sequence[Any]] = field(
        default=lambda *sizes: (), repr=False, compare=False
    )

    @classmethod
    def of(
        cls,
        ranges: Mapping[Expr, SizeRange],
        guards: Sequence[Expr],
        equal: Mapping[Expr, Expr],
        hints: SizeValues,
    ) -> Assumptions:
        """Solve the equations for symbols, and search samples near the hints and the range ends."""
        # Each solved symbol means one unknown less for z3, and one loop less for an enumeration.
        solved = _solutions(ranges, guards, equal)
        conditions = _range_conditions(ranges, solved)
        conditions += [guard.xreplace(solved) for guard in guards]
        kept = tuple(
            dict.fromkeys(condition for condition in conditions if condition != sympy.true)
        )
        free = {symbol: bounds for symbol, bounds in ranges.items() if symbol not in solved}
        assumptions = cls(free, kept, solved, _values=evaluator(tuple(free), kept))
        return replace(
            assumptions, samples=tuple(itertools.islice(assumptions._search(hints), MOST_SAMPLES))
        )

    def allow(self, sizes: SizeValues) -> bool:
        """Whether these sizes of the free symbols, in their order, satisfy all assumptions."""
        in_range = all(
            low <= sizes[symbol] and (high is None or sizes[symbol] <= high)
            for symbol, (low, high) in self.ranges.items()
        )
        return in_range and self._conditions_hold(tuple(sizes.values()))

    def _conditions_hold(self, sizes: Sequence[int]) -> bool:
        try:
            return all(self._values(*sizes))
        except ZeroDivisionError:
            # All conditions are computed, although an earlier one excludes a divisor of zero.
            return False

    def complete(self, sizes: SizeValues) -> dict[Expr, int]:
        """The sizes of all symbols, from those of the free ones."""
        solved = {symbol: int(evaluate(value, sizes)) for symbol, value in self.equal.items()}
        return {**sizes, **solved}

    @property
    def count(self) -> int | None:
        """The number of sizes in range, before conditions; None if a range has no upper bound."""
        count = 1
        for low, high in self.ranges.values():
            if high is None:
                return None
            count *= max(high - low + 1, 0)
        return count

    def enumerate_sizes(self, deadline: float) -> Iterator[SizeValues]:
        """All sizes that satisfy the assumptions; stops at the deadline of `time.perf_counter`.

        Every range must have an upper bound.
        """
        spans = [
            range(low, (high if high is not None else low) + 1)
            for low, high in self.ranges.values()
        ]
        for chosen in _choices(spans):
            if self._conditions_hold(chosen):
                yield dict(zip(self.ranges, chosen, strict=True))
            if time.perf_counter() >= deadline:
                return

    def _search(self, hints: SizeValues) -> Iterator[SizeValues]:
        """Sizes that satisfy the assumptions: the hints, the lower bounds, small random sizes."""
        empty_range = any(high is not None and high < low for low, high in self.ranges.values())
        if empty_range or sympy.false in self.conditions:
            return
        draw = random.Random(0)  # fixed: equal assumptions get equal samples
        lows = {symbol: low for symbol, (low, _) in self.ranges.items()}
        largest = {
            symbol: min(low + _SMALL, high if high is not None else low + _SMALL)
            for symbol, (low, high) in self.ranges.items()
        }
        next_to_lows = ({**lows, symbol: low + 1} for symbol, low in lows.items())
        drawn = (
            {symbol: draw.randint(low, largest[symbol]) for symbol, low in lows.items()}
            for _ in range(_DRAWS)
        )
        seen = set()
        # The hints come first: they are the sizes of the run that recorded the guards.
        hinted = {symbol: hints[symbol] for symbol in lows}
        for sizes in itertools.chain([hinted, lows], next_to_lows, drawn):
            key = tuple(sizes.values())
            if key not in seen and self.allow(sizes):
                yield sizes
            seen.add(key)


def _choices(spans: Sequence[range]) -> Iterator[tuple[int, ...]]:
    """All ways to choose one number from each range; the last one changes first.

    `itertools.product` would keep every range in memory, and a range can have 10**15 elements.
    """
    if not spans:
        yield ()
        return
    for rest in _choices(spans[:-1]):
        yield from ((*rest, last) for last in spans[-1])


def _solutions(
    ranges: Mapping[Expr, object], guards: Sequence[Expr], equal: Mapping[Expr, Expr]
) -> dict[Expr, Expr]:
    """Symbols that equal an expression of the others, by `equal` and the equations in the guards.

    No resulting expression contains a solved symbol.
    """
    equations = list(equal.items())
    for guard in guards:
        if isinstance(guard, sympy.Eq):  # either side can be the symbol
            equations += [(guard.lhs, guard.rhs), (guard.rhs, guard.lhs)]
    solved: dict[Expr, Expr] = {}
    for symbol, expression in equations:
        expression = expression.xreplace(solved)
        # Only symbols with a range can be solved for, by expressions of such symbols. A symbol on
        # both sides would need real algebra.
        if (
            symbol not in ranges
            or symbol in solved
            or symbol in expression.free_symbols
            or not expression.free_symbols <= ranges.keys()
        ):
            continue
        # The new solution can occur in earlier ones, so it is substituted there.
        substituted = {
            known: value.xreplace({symbol: expression}) for known, value in solved.items()
        }
        solved = substituted | {symbol: expression}
    return solved


def _range_conditions(ranges: Mapping[Expr, SizeRange], solved: Mapping[Expr, Expr]) -> list[Expr]:
    """The ranges of solved symbols as conditions on their expressions.

    If the expression is a symbol whose own range implies a bound, that condition is left out.
    """
    conditions = []
    for symbol, expression in solved.items():
        low, high = ranges[symbol]
        least, most = ranges.get(expression, (-math.inf, None))
        if least < low:
            conditions.append(sympy.Ge(expression, low))
        if high is not None and (most is None or most > high):
            conditions.append(sympy.Le(expression, high))
    return conditions
