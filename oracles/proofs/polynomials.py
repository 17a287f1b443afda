"""Polynomials over named unknowns, with integer coefficients."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

# The names of its factors, sorted, each as often as it is a factor. `()` is the constant one.
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
