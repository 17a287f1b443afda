"""Terms of sizes and indices as arithmetic that z3 can decide.

A term becomes a polynomial in symbols, one symbol for each quotient, remainder, minimum or maximum
in it, with what is known of that. A polynomial becomes a linear sum in which each product is a
number of its own, in Horner's form: the address `i*n1*n2 + j*n2 + k` is `n2*(n1*i + j) + k`, and
two rows that differ keep a distance of at least `n2`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]
import z3
from torch.utils._sympy import functions as of_torch

from oracles.proofs.assumptions import Expr
from oracles.proofs.symbolic import SymbolicRegion

Monomial: TypeAlias = tuple[str, ...]  # names of symbols, in order, each as often as it is a factor
Polynomial: TypeAlias = dict[Monomial, int]
Bounds: TypeAlias = tuple[int, int | None]
RegionPair: TypeAlias = tuple[SymbolicRegion, SymbolicRegion]

_RELATIONS: dict[type, Any] = {
    sympy.Eq: lambda difference: difference == 0,
    sympy.Ne: lambda difference: difference != 0,
    sympy.Lt: lambda difference: difference < 0,
    sympy.Le: lambda difference: difference <= 0,
    sympy.Gt: lambda difference: difference > 0,
    sympy.Ge: lambda difference: difference >= 0,
}
_QUOTIENTS = (of_torch.FloorDiv, of_torch.CleanDiv)
_REMAINDERS = (of_torch.Mod, of_torch.PythonMod)


class Untranslatable(Exception):
    """A term that is not known here; the message names its kind."""


@dataclass(slots=True)
class SizeQuestion:
    """A question in the making: the names in it, and what z3 is to know of them.

    `facts` hold for all sizes and are linear. `equations` say what the products are; with them z3
    decides the question as it is, without them a weaker one, of which only "there is no model"
    carries over.
    """

    context: Any
    bounds: Mapping[str, Bounds]
    facts: list[Any] = field(default_factory=list)
    equations: list[Any] = field(default_factory=list)
    indices: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _atoms: dict[Expr, str] = field(default_factory=dict)
    _products: dict[str, dict[frozenset[tuple[Monomial, int]], tuple[Any, Any]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        for name, (low, high) in self.bounds.items():
            self.facts.append(self.name(name) >= low)
            if high is not None:
                self.facts.append(self.name(name) <= high)

    def name(self, name: str) -> Any:
        """The unknown of that name."""
        return z3.Int(name, self.context)

    # From terms to polynomials. -------------------------------------------------------------------

    def polynomial(self, term: Expr) -> Polynomial:
        """A term as a polynomial. Raises `Untranslatable`."""
        if isinstance(term, sympy.Integer):
            return {(): int(term)} if term else {}
        if isinstance(term, sympy.Symbol):
            return {(str(term),): 1}
        if isinstance(term, (sympy.Add, sympy.Mul)):
            return self._combined(term)
        if (
            isinstance(term, (sympy.Pow, of_torch.PowByNatural))
            and isinstance(term.args[1], sympy.Integer)
            and term.args[1] > 0
        ):
            base = found = self.polynomial(term.args[0])
            for _ in range(int(term.args[1]) - 1):
                found = multiplied(found, base)
            return found
        if term not in self._atoms:
            self._atoms[term] = self._atom(term)
        return {(self._atoms[term],): 1}

    def _combined(self, term: Expr) -> Polynomial:
        """A sum or a product.

        With fractions in it, it is an exact quotient as a whole; no part of `n0/2 + n1/2` need be.
        """
        if not all(each.is_Integer for each in term.atoms(sympy.Rational)):
            above, below = term.as_numer_denom()
            if below != 1:
                return self.polynomial(of_torch.CleanDiv(above, below, evaluate=False))
        parts = map(self.polynomial, term.args)
        return added(*parts) if isinstance(term, sympy.Add) else functools.reduce(multiplied, parts)

    def _atom(self, term: Expr) -> str:
        """A new name for a term that is no polynomial, with what is known of it."""
        name = f"t{next(self._numbers)}"
        kind = type(term)
        new: Polynomial = {(name,): 1}
        if kind in _QUOTIENTS or kind in _REMAINDERS:
            value, divisor = map(self.polynomial, term.args)
            if kind in _QUOTIENTS:
                rest = added(value, scaled(multiplied(divisor, new), -1))
            else:
                quotient: Polynomial = {(f"{name}q",): 1}
                self.facts.append(
                    self.number(
                        added(value, scaled(multiplied(divisor, quotient), -1), scaled(new, -1))
                    )
                    == 0
                )
                rest = new
            below = self.number(added(divisor, scaled(rest, -1))) > 0
            self.facts.append(
                z3.Implies(self.number(divisor) > 0, z3.And(self.number(rest) >= 0, below))
            )
        elif kind is of_torch.ModularIndexing:
            value, divisor, modulus = term.args
            same = self.polynomial(of_torch.PythonMod(of_torch.FloorDiv(value, divisor), modulus))
            self.facts.append(self.number(added(new, scaled(same, -1))) == 0)
        elif kind in (of_torch.Min, of_torch.Max, sympy.Min, sympy.Max):
            sign = 1 if kind in (of_torch.Max, sympy.Max) else -1
            over = [
                self.number(scaled(added(new, scaled(self.polynomial(each), -1)), sign))
                for each in term.args
            ]
            self.facts += [*(each >= 0 for each in over), z3.Or(*(each == 0 for each in over))]
        else:
            raise Untranslatable(kind.__name__)
        return name

    def condition(self, term: Expr) -> Any:
        """A condition on sizes. Raises `Untranslatable`."""
        if term in (sympy.true, sympy.false):
            return z3.BoolVal(bool(term), self.context)
        if type(term) in _RELATIONS:
            difference = self.number(
                added(self.polynomial(term.lhs), scaled(self.polynomial(term.rhs), -1))
            )
            return _RELATIONS[type(term)](difference)
        parts = [self.condition(each) for each in term.args]
        if isinstance(term, sympy.And):
            return z3.And(*parts)
        if isinstance(term, sympy.Or):
            return z3.Or(*parts)
        if isinstance(term, sympy.Not):
            return z3.Not(parts[0])
        raise Untranslatable(type(term).__name__)

    # From polynomials to linear sums. -------------------------------------------------------------

    def number(self, polynomial: Polynomial) -> Any:
        """A polynomial as a sum of unknowns, some of which stand for products."""
        factor = self._commonest_factor(polynomial)
        if factor is None:
            parts = (
                count * self.name(each[0]) if each else count for each, count in polynomial.items()
            )
            return z3.Sum(z3.IntVal(0, self.context), *parts)
        inner = {
            without(each, factor): count for each, count in polynomial.items() if factor in each
        }
        outer = {each: count for each, count in polynomial.items() if factor not in each}
        return self.product(factor, inner) + self.number(outer)

    def _commonest_factor(self, polynomial: Polynomial) -> str | None:
        """The size that most products share, if there is a product."""
        counts = Counter(
            name for each in polynomial if len(each) > 1 for name in set(each) - self.indices
        )
        return min(counts, key=lambda name: (-counts[name], name), default=None)

    def product(self, factor: str, inner: Polynomial) -> Any:
        """`factor * inner`: an unknown of which z3 learns what a linear fact can say."""
        if set(inner) <= {()}:
            return inner.get((), 0) * self.name(factor)
        known = self._products.setdefault(factor, {})
        key = frozenset(inner.items())
        if key in known:
            return known[key][1]
        times = self.number(inner)
        value = self.name(f"p{len(self.equations)}")
        size = self.name(factor)
        self.equations.append(value == size * times)
        low, high = self.bounds.get(factor, (0, None))
        facts = [
            z3.Implies(times == 0, value == 0),
            z3.Implies(times >= 1, z3.And(value >= size, value >= low * times)),
            z3.Implies(times <= -1, z3.And(value <= -size, value <= low * times)),
            *(z3.Implies(times == each, value == each * size) for each in (1, -1)),
            z3.Implies(times >= 2, value >= 2 * size),
            z3.Implies(times <= -2, value <= -2 * size),
        ]
        if high is not None:
            facts += [
                z3.Implies(times >= 0, value <= high * times),
                z3.Implies(times <= 0, value >= high * times),
            ]
        for other, theirs in known.values():
            facts += [
                z3.Implies(times == other, value == theirs),
                z3.Implies(times > other, value >= theirs + size),
                z3.Implies(times < other, value <= theirs - size),
            ]
        if factor not in self.bounds:  # the sign of a quotient is a matter of its own
            facts = [z3.Implies(size >= 0, z3.And(*facts)), z3.Implies(size == 0, value == 0)]
        self.facts += facts
        known[key] = (times, value)
        return value

    # Regions. -------------------------------------------------------------------------------------

    def share_a_byte(self, one: SymbolicRegion, other: SymbolicRegion) -> list[Any]:
        """Conditions that some element of each holds the same byte; the indices are `i0`, `i1`, ... and `j0`, `j1`, ..."""
        distance = added(self.polynomial(other.start), scaled(self.polynomial(one.start), -1))
        conditions = []
        for letter, sign, region in (("i", -1, one), ("j", 1, other)):
            for dim, (size, stride) in enumerate(zip(region.sizes, region.strides, strict=True)):
                index = f"{letter}{dim}"
                self.indices.add(index)
                last = added(self.polynomial(size), {(index,): -1, (): -1})
                conditions += [self.name(index) >= 0, self.number(last) >= 0]
                distance = added(
                    distance, scaled(multiplied(self.polynomial(stride), {(index,): 1}), sign)
                )
        return [*conditions, *self._near(distance, one.itemsize, other.itemsize)]

    def at_indices_share_a_byte(
        self, pair: RegionPair, indices: tuple[tuple[int, ...], tuple[int, ...]]
    ) -> list[Any]:
        """Conditions that each region has the element of these indices, and that the two hold the same byte."""
        distance = added(self.polynomial(pair[1].start), scaled(self.polynomial(pair[0].start), -1))
        conditions = []
        for region, chosen, sign in zip(pair, indices, (-1, 1), strict=True):
            for size, stride, index in zip(region.sizes, region.strides, chosen, strict=True):
                conditions.append(self.number(added(self.polynomial(size), {(): -1 - index})) >= 0)
                distance = added(distance, multiplied(self.polynomial(stride), {(): sign * index}))
        return [*conditions, *self._near(distance, pair[0].itemsize, pair[1].itemsize)]

    def _near(self, distance: Polynomial, item: int, other: int) -> list[Any]:
        """Conditions that elements of so many bytes, the second `distance` bytes behind the first, share a byte."""
        unit = math.gcd(item, other, *distance.values())
        apart = self.number({each: count // unit for each, count in distance.items()})
        if item == other == unit:
            return [apart == 0]
        return [apart < item // unit, apart > -(other // unit)]

    def lie_otherwise(self, one: RegionPair, other: RegionPair) -> Any:
        """The condition that two pairs of regions, alike in dims, do not lie to each other in the same way."""
        distances = [
            self.number(self.polynomial(a - b)) != 0
            for a, b in zip(_relation(one), _relation(other), strict=True)
        ]
        return z3.Or(*distances)


def _relation(pair: RegionPair) -> list[Expr]:
    one, other = pair
    return [other.start - one.start, *one.sizes, *one.strides, *other.sizes, *other.strides]


# --- polynomials ----------------------------------------------------------------------------------


def added(*polynomials: Polynomial) -> Polynomial:
    """The sum."""
    found: Counter[Monomial] = Counter()
    for each in polynomials:
        for monomial, count in each.items():
            found[monomial] += count
    return {monomial: count for monomial, count in found.items() if count}


def scaled(polynomial: Polynomial, by: int) -> Polynomial:
    """A multiple, not that of zero."""
    return {monomial: by * count for monomial, count in polynomial.items()}


def multiplied(one: Polynomial, other: Polynomial) -> Polynomial:
    """The product."""
    return added(*({tuple(sorted(a + b)): m * n} for a, m in one.items() for b, n in other.items()))


def without(monomial: Monomial, factor: str) -> Monomial:
    """A monomial divided by one of its factors."""
    at = monomial.index(factor)
    return monomial[:at] + monomial[at + 1 :]


def same_relation(one: RegionPair, other: RegionPair) -> bool:
    """Whether two regions lie to each other as two others do, term by term."""
    return alike_in_dims(one, other) and all(
        a == b or sympy.expand(a - b) == 0
        for a, b in zip(_relation(one), _relation(other), strict=True)
    )


def alike_in_dims(one: RegionPair, other: RegionPair) -> bool:
    """Whether the regions of two pairs have as many dims, and elements as large."""
    return all(
        (len(a.sizes), a.itemsize) == (len(b.sizes), b.itemsize)
        for a, b in zip(one, other, strict=True)
    )
