"""For which sizes something is said: ranges and conditions of symbols, and the values of terms at given sizes.

Terms are those of torch's symbolic sizes: of sympy, with torch's own quotients, remainders, minima
and maxima.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]
from sympy.printing.pycode import PythonCodePrinter  # type: ignore[import-untyped]
from torch.utils._sympy import functions as of_torch

from programs.errors import Rejected

Expr: TypeAlias = Any  # of sympy, which ships no types
Sizes: TypeAlias = Mapping[Expr, int]

MOST_SAMPLES = 12
_DRAWS = 400


@dataclass(frozen=True, slots=True)
class Premises:
    """For which sizes: the free symbols with their ranges, and conditions on them.

    `equal` are the other symbols, as terms of these. `samples` are sizes that fulfil all of it, as
    far as a short search found any.
    """

    ranges: Mapping[Expr, tuple[int, int | None]]
    conditions: tuple[Expr, ...]
    equal: Mapping[Expr, Expr]
    samples: tuple[Sizes, ...] = ()
    _values: Callable[..., Sequence[Any]] = field(
        default=lambda *sizes: (), repr=False, compare=False
    )

    @classmethod
    def of(
        cls,
        ranges: Mapping[Expr, tuple[int, int | None]],
        guards: Sequence[Expr],
        equal: Mapping[Expr, Expr],
        hints: Sizes,
    ) -> Premises:
        """Solve the equations that say what a symbol is, and look for samples near the hints and the ends of the ranges."""
        solved = _solved(ranges, guards, equal)
        conditions: list[Expr] = []
        for name, term in solved.items():
            (low, high), (least, most) = (
                ranges[name],
                ranges.get(term, (-math.inf, None)),
            )  # what a symbol's own range says
            conditions += [sympy.Ge(term, low)] if least < low else []
            conditions += (
                [sympy.Le(term, high)] if high is not None and (most is None or most > high) else []
            )
        conditions += [each.xreplace(solved) for each in guards]
        kept = tuple(dict.fromkeys(each for each in conditions if each != sympy.true))
        free = {name: bounds for name, bounds in ranges.items() if name not in solved}
        found = cls(free, kept, solved, _values=compiled(tuple(free), kept))
        return replace(found, samples=tuple(itertools.islice(found._search(hints), MOST_SAMPLES)))

    def holds(self, sizes: Sizes) -> bool:
        """Whether these sizes, of the free symbols in their order, are in range and fulfil all conditions."""
        inside = all(
            low <= sizes[name] and (high is None or sizes[name] <= high)
            for name, (low, high) in self.ranges.items()
        )
        return inside and self._fulfilled(tuple(sizes.values()))

    def _fulfilled(self, sizes: Sequence[int]) -> bool:
        try:
            return all(self._values(*sizes))
        except ZeroDivisionError:  # an earlier guard excludes that
            return False

    def whole(self, sizes: Sizes) -> dict[Expr, int]:
        """The sizes of all symbols, from those of the free ones."""
        return {**sizes, **{name: int(evaluate(term, sizes)) for name, term in self.equal.items()}}

    @property
    def count(self) -> int | None:
        """How many sizes are in range, conditions aside; None if there is no bound."""
        count = 1
        for low, high in self.ranges.values():
            if high is None:
                return None
            count *= max(high - low + 1, 0)
        return count

    def every(self, deadline: float) -> Iterator[Sizes]:
        """All sizes that fulfil the premises, until the deadline by `time.perf_counter`.

        The ranges are bounded.
        """
        spans = [
            range(low, (high if high is not None else low) + 1)
            for low, high in self.ranges.values()
        ]
        for chosen in _choices(spans):
            if self._fulfilled(chosen):
                yield dict(zip(self.ranges, chosen, strict=True))
            if time.perf_counter() >= deadline:
                return

    def _search(self, hints: Sizes) -> Iterator[Sizes]:
        """Candidates that hold, each once: the hints, the smallest, those next to them, and draws of small sizes."""
        if (
            any(high is not None and high < low for low, high in self.ranges.values())
            or sympy.false in self.conditions
        ):
            return
        draw = random.Random(0)
        lows = {name: low for name, (low, _) in self.ranges.items()}
        reach = {
            name: min(low + 15, high if high is not None else low + 15)
            for name, (low, high) in self.ranges.items()
        }
        near = ({**lows, name: low + 1} for name, low in lows.items())
        drawn = (
            {name: draw.randint(low, reach[name]) for name, low in lows.items()}
            for _ in range(_DRAWS)
        )
        seen = set()
        for each in itertools.chain([{name: hints[name] for name in lows}, lows], near, drawn):
            key = tuple(each.values())
            if key not in seen and self.holds(each):
                yield each
            seen.add(key)


def _choices(spans: Sequence[range]) -> Iterator[tuple[int, ...]]:
    """All ways to choose one of each, the last changing first."""
    if not spans:  # `itertools.product` would hold all of the ranges in memory
        yield ()
        return
    for rest in _choices(spans[:-1]):
        yield from ((*rest, last) for last in spans[-1])


def _solved(
    ranges: Mapping[Expr, object], guards: Sequence[Expr], equal: Mapping[Expr, Expr]
) -> dict[Expr, Expr]:
    """Symbols that are equal to a term of others, by the equations among the guards; no term holds a solved symbol."""
    equations = list(equal.items())
    for each in guards:
        if isinstance(each, sympy.Eq):
            equations += [(each.lhs, each.rhs), (each.rhs, each.lhs)]
    solved: dict[Expr, Expr] = {}
    for name, term in equations:
        term = term.xreplace(solved)
        if (
            name not in ranges
            or name in solved
            or name in term.free_symbols
            or not term.free_symbols <= ranges.keys()
        ):
            continue
        solved = {known: each.xreplace({name: term}) for known, each in solved.items()} | {
            name: term
        }
    return solved


# --- terms in numbers -----------------------------------------------------------------------------


def _product(*factors: Any) -> Any:
    return math.prod(factors)


_MEANING: dict[type, Callable[..., Any]] = {
    sympy.Add: lambda *terms: sum(terms),
    sympy.Mul: _product,
    sympy.Pow: operator.pow,
    sympy.And: lambda *parts: all(parts),
    sympy.Or: lambda *parts: any(parts),
    sympy.Not: operator.not_,
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
    sympy.Lt: operator.lt,
    sympy.Le: operator.le,
    sympy.Gt: operator.gt,
    sympy.Ge: operator.ge,
    sympy.Max: max,
    sympy.Min: min,
    of_torch.Max: max,
    of_torch.Min: min,
    of_torch.FloorDiv: operator.floordiv,
    of_torch.CleanDiv: operator.floordiv,
    of_torch.PythonMod: operator.mod,
    of_torch.Mod: operator.mod,
    of_torch.ModularIndexing: lambda value, divisor, modulus: value // divisor % modulus,
    of_torch.PowByNatural: operator.pow,
}


def evaluate(term: Expr, sizes: Sizes) -> Any:
    """The value of a term or condition at given sizes.

    Raises `Rejected` if it has symbols of no given size.
    """
    if isinstance(term, sympy.Symbol):
        if term not in sizes:
            raise Rejected(f"the size {term} depends on numbers")
        return sizes[term]
    if isinstance(term, sympy.Integer):
        return int(term)
    if isinstance(term, sympy.Rational):
        return Fraction(int(term.p), int(term.q))
    meaning = _MEANING.get(type(term))
    if meaning is not None:
        return meaning(*(evaluate(each, sizes) for each in term.args))
    value = term.xreplace({name: sympy.Integer(number) for name, number in sizes.items()})
    if value in (sympy.true, sympy.false):
        return bool(value)
    if isinstance(value, sympy.Float):  # with the 53 bits that a Python float has
        return float(value)
    if not value.is_Integer:
        raise Rejected(f"{term} has no value: {type(term).__name__} is not known")
    return int(value)


def compiled(symbols: Sequence[Expr], terms: Sequence[Expr]) -> Callable[..., Sequence[Any]]:
    """A function of the symbols that gives the values of all terms, a hundred times faster than `evaluate`.

    Raises `Rejected` if there are other symbols in the terms.
    """
    for each in terms:
        if not each.free_symbols <= set(symbols):
            raise Rejected(
                f"the sizes {', '.join(sorted(map(str, each.free_symbols - set(symbols))))} depend on numbers"
            )
    if not all(_is_plain(part) for each in terms for part in sympy.preorder_traversal(each)):
        return lambda *sizes: [
            evaluate(each, dict(zip(symbols, sizes, strict=True))) for each in terms
        ]
    printer = _Calls(
        {"fully_qualified_modules": False, "inline": True, "allow_unknown_functions": True}
    )
    modules = [_OF_TORCH, "math"]
    found: Callable[..., Sequence[Any]] = sympy.lambdify(
        symbols, list(terms), modules, printer=printer, cse=True
    )
    return found


class _Calls(PythonCodePrinter):  # type: ignore[misc]
    """Prints torch's functions as calls.

    Sympy takes those that have the names of its own for operators.
    """

    def _print_Function(self, term: Expr) -> str:  # noqa: N802 - sympy looks for these names
        return f"{type(term).__name__}({', '.join(map(self._print, term.args))})"

    _print_Mod = _print_Max = _print_Min = _print_Function  # noqa: N815


_OF_TORCH = {
    kind.__name__: meaning
    for kind, meaning in _MEANING.items()
    if kind.__module__ == of_torch.__name__
}


def _is_plain(term: Expr) -> bool:
    """Whether a term, its parts aside, is the same in Python: no fraction, which would become a float."""
    if isinstance(term, sympy.Pow):
        return bool(term.args[1].is_Integer and term.args[1] >= 0)
    return (
        isinstance(term, (sympy.Symbol, sympy.Integer))
        or type(term) in _MEANING
        or term in (sympy.true, sympy.false)
    )
