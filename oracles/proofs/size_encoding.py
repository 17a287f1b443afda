"""Expressions of sizes and indices as arithmetic that z3 can decide.

An expression becomes a polynomial. Each quotient, remainder, minimum or maximum in it becomes an
unknown, with facts that define it. A polynomial becomes a linear sum, in which each product is an
unknown of its own. The sum is in Horner's form: the address `i*n1*n2 + j*n2 + k` is
`n2*(n1*i + j) + k`. From this form z3 sees that two different rows keep a distance of at least
`n2`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]
import z3
from torch.utils._sympy import functions as torch_functions

from aliasproof.oracles.proofs.assumptions import Assumptions, SizeRange
from aliasproof.oracles.proofs.size_expressions import Expr, SizeValues
from aliasproof.oracles.proofs.symbolic_inputs import RegionPair
from aliasproof.oracles.smt import Disjoint, Session, Unknown

# --- polynomials ----------------------------------------------------------------------------------
#
# Polynomials over named unknowns, with integer coefficients.


# The sorted names of the factors, each repeated by its power. `()` is the constant monomial.
Monomial: TypeAlias = tuple[str, ...]
Polynomial: TypeAlias = dict[Monomial, int]  # no coefficient is zero


def add(*polynomials: Polynomial) -> Polynomial:
    """The sum."""
    total: Counter[Monomial] = Counter()
    for polynomial in polynomials:
        for monomial, coefficient in polynomial.items():
            total[monomial] += coefficient
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def subtract(one: Polynomial, other: Polynomial) -> Polynomial:
    """The difference."""
    return add(one, scale(other, -1))


def scale(polynomial: Polynomial, by: int) -> Polynomial:
    """A multiple; `by` is not zero."""
    return {monomial: by * coefficient for monomial, coefficient in polynomial.items()}


def multiply(one: Polynomial, other: Polynomial) -> Polynomial:
    """The product."""
    return add(
        *(
            {tuple(sorted(left + right)): m * n}
            for left, m in one.items()
            for right, n in other.items()
        )
    )


def divide(monomial: Monomial, factor: str) -> Monomial:
    """A monomial divided by one of its factors."""
    position = monomial.index(factor)
    return monomial[:position] + monomial[position + 1 :]


# --- size encoding --------------------------------------------------------------------------------


# A relation as a condition on the difference of its sides.
_RELATIONS: dict[type, Any] = {
    sympy.Eq: lambda difference: difference == 0,
    sympy.Ne: lambda difference: difference != 0,
    sympy.Lt: lambda difference: difference < 0,
    sympy.Le: lambda difference: difference <= 0,
    sympy.Gt: lambda difference: difference > 0,
    sympy.Ge: lambda difference: difference >= 0,
}
_QUOTIENTS = (torch_functions.FloorDiv, torch_functions.CleanDiv)
_REMAINDERS = (torch_functions.Mod, torch_functions.PythonMod)
_MAXIMA = (torch_functions.Max, sympy.Max)
_MINIMA = (torch_functions.Min, sympy.Min)


class Untranslatable(Exception):
    """An expression of a kind that has no encoding; the message names the kind."""


@dataclass(slots=True)
class SizeEncoding:
    """The unknowns of one question to z3, and what z3 knows about them.

    `facts` are linear and hold for all sizes. `equations` define the products. With them z3 decides
    the exact question. Without them the question is weaker: it has more models, so only the answer
    "no model" carries over.
    """

    context: Any
    bounds: Mapping[str, SizeRange]
    facts: list[Any] = field(default_factory=list)
    equations: list[Any] = field(default_factory=list)
    indices: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _named: dict[Expr, str] = field(default_factory=dict)  # unknowns for quotients and similar
    # By factor, then by inner polynomial (as a key): that polynomial and the product, as z3 terms.
    _products: dict[str, dict[frozenset[tuple[Monomial, int]], tuple[Any, Any]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        for name, (low, high) in self.bounds.items():
            self.facts.append(self.unknown(name) >= low)
            if high is not None:
                self.facts.append(self.unknown(name) <= high)

    def unknown(self, name: str) -> Any:
        """The z3 integer of that name."""
        return z3.Int(name, self.context)

    # From expressions to polynomials. -------------------------------------------------------------

    def polynomial(self, expression: Expr) -> Polynomial:
        """An expression as a polynomial. Raises `Untranslatable`."""
        if isinstance(expression, sympy.Integer):
            return {(): int(expression)} if expression else {}
        if isinstance(expression, sympy.Symbol):
            return {(str(expression),): 1}
        if isinstance(expression, (sympy.Add, sympy.Mul)):
            return self._sum_or_product(expression)
        if (
            isinstance(expression, (sympy.Pow, torch_functions.PowByNatural))
            and isinstance(expression.args[1], sympy.Integer)
            and expression.args[1] > 0
        ):
            # A constant power is a repeated product. Other powers get a name below, and fail there.
            base = power = self.polynomial(expression.args[0])
            for _ in range(int(expression.args[1]) - 1):
                power = multiply(power, base)
            return power
        # Anything else is one unknown; equal expressions share it.
        if expression not in self._named:
            self._named[expression] = self._define(expression)
        return {(self._named[expression],): 1}

    def _sum_or_product(self, expression: Expr) -> Polynomial:
        """A sum or a product.

        If it contains fractions, the whole expression is an exact quotient. Its parts need not be
        integers: with two odd sizes, `n0/2 + n1/2` is an integer and its parts are not.
        """
        if not all(atom.is_Integer for atom in expression.atoms(sympy.Rational)):
            above, below = expression.as_numer_denom()
            # A size is an integer, so the division has no remainder.
            if below != 1:
                return self.polynomial(torch_functions.CleanDiv(above, below, evaluate=False))
        parts = map(self.polynomial, expression.args)
        if isinstance(expression, sympy.Add):
            return add(*parts)
        return functools.reduce(multiply, parts)

    def _define(self, expression: Expr) -> str:
        """A new unknown for an expression that is no polynomial, with facts that define it."""
        name = f"t{next(self._numbers)}"
        kind = type(expression)
        if kind in _QUOTIENTS or kind in _REMAINDERS:
            self._define_division(name, kind in _QUOTIENTS, *expression.args)
        elif kind is torch_functions.ModularIndexing:
            value, divisor, modulus = expression.args
            quotient = torch_functions.FloorDiv(value, divisor)
            same = self.polynomial(torch_functions.PythonMod(quotient, modulus))
            self.facts.append(self.linear(subtract({(name,): 1}, same)) == 0)
        elif kind in _MAXIMA:
            self._define_extremum(name, 1, expression.args)
        elif kind in _MINIMA:
            self._define_extremum(name, -1, expression.args)
        else:
            raise Untranslatable(kind.__name__)
        return name

    def _define_division(
        self, name: str, is_quotient: bool, dividend: Expr, divisor_expression: Expr
    ) -> None:
        """The unknown is a quotient, or the remainder to a quotient that gets a name, too.

        Fact: for a positive divisor, 0 <= dividend - divisor * quotient < divisor.
        """
        value, divisor = self.polynomial(dividend), self.polynomial(divisor_expression)
        new: Polynomial = {(name,): 1}
        if is_quotient:
            rest = subtract(value, multiply(divisor, new))
        else:
            quotient: Polynomial = {(f"{name}q",): 1}
            difference = add(value, scale(multiply(divisor, quotient), -1), scale(new, -1))
            self.facts.append(self.linear(difference) == 0)
            rest = new
        below = self.linear(subtract(divisor, rest)) > 0
        positive = self.linear(divisor) > 0
        self.facts.append(z3.Implies(positive, z3.And(self.linear(rest) >= 0, below)))

    def _define_extremum(self, name: str, sign: int, operands: Sequence[Expr]) -> None:
        """The unknown is the maximum (sign 1) or minimum (sign -1) of the operands.

        Facts: it is on the right side of all operands, and equals one of them.
        """
        distances = [
            self.linear(scale(subtract({(name,): 1}, self.polynomial(operand)), sign))
            for operand in operands
        ]
        self.facts += [
            *(distance >= 0 for distance in distances),
            z3.Or(*(distance == 0 for distance in distances)),
        ]

    def condition(self, condition: Expr) -> Any:
        """A condition on sizes. Raises `Untranslatable`."""
        if condition in (sympy.true, sympy.false):
            return z3.BoolVal(bool(condition), self.context)
        if type(condition) in _RELATIONS:
            left, right = self.polynomial(condition.lhs), self.polynomial(condition.rhs)
            return _RELATIONS[type(condition)](self.linear(subtract(left, right)))
        parts = [self.condition(part) for part in condition.args]
        if isinstance(condition, sympy.And):
            return z3.And(*parts)
        if isinstance(condition, sympy.Or):
            return z3.Or(*parts)
        if isinstance(condition, sympy.Not):
            return z3.Not(parts[0])
        raise Untranslatable(type(condition).__name__)

    # From polynomials to linear sums. -------------------------------------------------------------

    def linear(self, polynomial: Polynomial) -> Any:
        """A polynomial as a linear sum of unknowns; products are unknowns of their own."""
        factor = self._commonest_factor(polynomial)
        if factor is None:
            parts = (
                count * self.unknown(monomial[0]) if monomial else count
                for monomial, count in polynomial.items()
            )
            return z3.Sum(z3.IntVal(0, self.context), *parts)
        # One step of Horner's scheme: factor * inner + outer.
        inner = {
            divide(monomial, factor): count
            for monomial, count in polynomial.items()
            if factor in monomial
        }
        outer = {
            monomial: count for monomial, count in polynomial.items() if factor not in monomial
        }
        return self.product(factor, inner) + self.linear(outer)

    def _commonest_factor(self, polynomial: Polynomial) -> str | None:
        """The size in most of the products, or None if there is no product.

        Indices do not count. A size as the factor keeps the sum of indices inside, where z3 can
        reason about it.
        """
        counts = Counter(
            name
            for monomial in polynomial
            if len(monomial) > 1
            for name in set(monomial) - self.indices
        )
        return min(counts, key=lambda name: (-counts[name], name), default=None)

    def product(self, factor: str, inner: Polynomial) -> Any:
        """`factor * inner` as an unknown, with the linear facts that z3 can use about it."""
        if set(inner) <= {()}:  # a constant multiple is linear already
            return inner.get((), 0) * self.unknown(factor)
        known = self._products.setdefault(factor, {})
        key = frozenset(inner.items())
        if key in known:
            return known[key][1]
        times = self.linear(inner)
        # z3 gets the exact equation only in the questions with products.
        value = self.unknown(f"p{len(self.equations)}")
        size = self.unknown(factor)
        self.equations.append(value == size * times)
        low, high = self.bounds.get(factor, (0, None))
        facts = _product_facts(value, size, times, low, high)
        # Products of one size are ordered like their other factors, and at least a size apart.
        for other_times, other_value in known.values():
            facts += [
                z3.Implies(times == other_times, value == other_value),
                z3.Implies(times > other_times, value >= other_value + size),
                z3.Implies(times < other_times, value <= other_value - size),
            ]
        if factor not in self.bounds:
            # The factor is a quotient or similar. The facts above hold only if it is not negative.
            facts = [z3.Implies(size >= 0, z3.And(*facts)), z3.Implies(size == 0, value == 0)]
        self.facts += facts
        known[key] = (times, value)
        return value

    # Regions. -------------------------------------------------------------------------------------

    def share_a_byte(
        self, pair: RegionPair, indices: Sequence[Sequence[int] | None] = (None, None)
    ) -> list[Any]:
        """Conditions that an element of each region contains the same byte.

        `indices` are those of the two elements; without, they are the unknowns `i0`, `i1`, ... and
        `j0`, `j1`, ...
        """
        one, other = pair
        # From the start of the first element to that of the second, in bytes.
        distance = subtract(self.polynomial(other.start), self.polynomial(one.start))
        conditions = []
        for letter, sign, region, chosen in zip("ij", (-1, 1), pair, indices, strict=True):
            for dim, (size, stride) in enumerate(zip(region.sizes, region.strides, strict=True)):
                if chosen is not None:
                    index: Polynomial = {(): chosen[dim]} if chosen[dim] else {}
                else:
                    name = f"{letter}{dim}"
                    # Before the first polynomial that contains it: it is never a common factor.
                    self.indices.add(name)
                    index = {(name,): 1}
                    conditions.append(self.unknown(name) >= 0)
                left = subtract(self.polynomial(size), add(index, {(): 1}))
                conditions.append(self.linear(left) >= 0)
                step = multiply(self.polynomial(stride), index)
                distance = add(distance, scale(step, sign))
        # In units of the common divisor the coefficients are small; often one equation is left.
        unit = math.gcd(one.itemsize, other.itemsize, *distance.values())
        apart = self.linear({monomial: count // unit for monomial, count in distance.items()})
        if one.itemsize == other.itemsize == unit:
            return [*conditions, apart == 0]
        return [*conditions, apart < one.itemsize // unit, apart > -(other.itemsize // unit)]

    def layouts_differ(self, one: RegionPair, other: RegionPair) -> Any:
        """The condition that two pairs of regions have different relative layouts.

        The regions of both pairs have equal numbers of dimensions.
        """
        differences = [
            self.linear(self.polynomial(a - b)) != 0
            for a, b in zip(_relative_layout(one), _relative_layout(other), strict=True)
        ]
        return z3.Or(*differences)


def _product_facts(value: Any, size: Any, times: Any, low: int, high: int | None) -> list[Any]:
    """Linear facts about `value`, the product of `size` in its range and `times`."""
    # The consequences of 0 <= low <= size <= high for each sign of `times`, and exact values for
    # the small multiples, which neighbouring rows and blocks need.
    facts = [
        z3.Implies(times == 0, value == 0),
        z3.Implies(times >= 1, z3.And(value >= size, value >= low * times)),
        z3.Implies(times <= -1, z3.And(value <= -size, value <= low * times)),
        *(z3.Implies(times == count, value == count * size) for count in (1, -1)),
        z3.Implies(times >= 2, value >= 2 * size),
        z3.Implies(times <= -2, value <= -2 * size),
    ]
    if high is not None:
        facts += [
            z3.Implies(times >= 0, value <= high * times),
            z3.Implies(times <= 0, value >= high * times),
        ]
    return facts


# --- relative layouts -----------------------------------------------------------------------------


def _relative_layout(pair: RegionPair) -> list[Expr]:
    """The expressions that decide overlap; they do not depend on where the first region starts."""
    one, other = pair
    return [other.start - one.start, *one.sizes, *one.strides, *other.sizes, *other.strides]


def same_relative_layout(one: RegionPair, other: RegionPair) -> bool:
    """Whether two pairs of regions have the same relative layout, expression by expression."""
    return same_dims_and_itemsizes(one, other) and all(
        a == b or sympy.expand(a - b) == 0
        for a, b in zip(_relative_layout(one), _relative_layout(other), strict=True)
    )


def same_dims_and_itemsizes(one: RegionPair, other: RegionPair) -> bool:
    """Whether the regions of two pairs have equal numbers of dimensions and item sizes."""
    return all(
        (len(a.sizes), a.itemsize) == (len(b.sizes), b.itemsize)
        for a, b in zip(one, other, strict=True)
    )


# --- size search ----------------------------------------------------------------------------------


MOST_ROUNDS = 64  # sizes that z3 may propose in one search


def encoding_of(assumptions: Assumptions) -> SizeEncoding:
    """The assumptions for z3.

    A condition that cannot be translated is left out. Then a proof covers more sizes than needed,
    and a refutation is checked against all conditions anyway.
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

    After the search, either `exhausted` is true (there are no other sizes), or `reason` says why
    the search ended.
    """

    encoding: SizeEncoding
    wanted: Sequence[Any]
    assumptions: Assumptions
    deadline: float
    exhausted: bool = False
    reason: str = ""

    def solutions(self) -> Iterator[SizeValues]:
        """Sizes, each once. They satisfy all assumptions, also those that are not given to z3."""
        symbols = list(self.assumptions.ranges)
        unknowns = [self.encoding.unknown(str(symbol)) for symbol in symbols]
        # The equations make products exact, so a solution is a solution of the exact question.
        conditions = [*self.encoding.facts, *self.encoding.equations, *self.wanted]
        for _ in range(MOST_ROUNDS):
            answer = ask(conditions, unknowns, self.deadline)
            if not isinstance(answer, tuple):
                self.exhausted = isinstance(answer, Disjoint)
                self.reason = answer.reason if isinstance(answer, Unknown) else ""
                return
            sizes = dict(zip(symbols, answer, strict=True))
            # Conditions that cannot be translated were not given to z3.
            if self.assumptions.allow(sizes):
                yield sizes
            # The next model must differ from this one in some size.
            others = [unknown != value for unknown, value in zip(unknowns, answer, strict=True)]
            conditions.append(z3.Or(z3.BoolVal(False, self.encoding.context), *others))
        self.reason = f"z3 proposed {MOST_ROUNDS} sizes without success"
