"""The language of lemmas: strided views, and formulas that plain Python and z3 both understand.

A statement is written once and read twice. With z3 expressions it is proved. With plain integers it
checks each witness, and tests compare a restated predicate to the original.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import z3

from aliasproof.ir.regions import Region

Number: TypeAlias = Any  # an `int`, or a z3 integer expression
Formula: TypeAlias = Any  # a `bool`, or a z3 Boolean expression
Scope: TypeAlias = Callable[[str], Number]  # gives the value, or the z3 unknown, of a name


def named(scope: Scope, names: str) -> list[Number]:
    """The numbers of these names, which spaces separate."""
    return [scope(name) for name in names.split()]


@dataclass(frozen=True, slots=True)
class SymbolicView:
    """A strided view.

    Offset and strides count elements of `itemsize` bytes; the offset is from the storage's start.
    """

    offset: Number
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]
    itemsize: int = 1

    @property
    def dims(self) -> int:
        """The number of dimensions."""
        return len(self.sizes)

    @property
    def numel(self) -> Number:
        """The number of elements."""
        return prod(self.sizes)

    def address(self, index: Sequence[Number]) -> Number:
        """The first byte of an element, counted from the start of the storage."""
        return self.itemsize * (
            self.offset + sum(stride * i for stride, i in zip(self.strides, index, strict=True))
        )

    def region(self) -> Region:
        """The bytes of a view of plain integers."""
        strides = tuple(stride * self.itemsize for stride in self.strides)
        return Region(self.offset * self.itemsize, self.sizes, strides, self.itemsize)


def view(scope: Scope, name: str, dims: int, itemsize: int = 1) -> SymbolicView:
    """A view whose offset, sizes and strides are called `x.offset` and so on, after its name."""
    sizes = tuple(scope(f"{name}.size{dim}") for dim in range(dims))
    return SymbolicView(
        scope(f"{name}.offset"),
        sizes,
        tuple(scope(f"{name}.stride{dim}") for dim in range(dims)),
        itemsize,
    )


def index(scope: Scope, name: str, of: SymbolicView) -> tuple[Number, ...]:
    """An index tuple, without bounds; `inside` gives these."""
    return tuple(scope(f"{name}{dim}") for dim in range(of.dims))


# --- formulas -------------------------------------------------------------------------------------


def inside(index: Sequence[Number], of: SymbolicView) -> list[Formula]:
    """The view has an element at this index."""
    return [bound for i, size in zip(index, of.sizes, strict=True) for bound in (i >= 0, i < size)]


# Python's `or`, `and`, `not` and `if` need a plain bool, so statements use these functions.


def either(*conditions: Formula) -> Formula:
    """At least one condition holds."""
    return z3.Or(*conditions) if any(map(z3.is_expr, conditions)) else any(conditions)


def every(*conditions: Formula) -> Formula:
    """All conditions hold."""
    return z3.And(*conditions) if any(map(z3.is_expr, conditions)) else all(conditions)


def no(condition: Formula) -> Formula:
    """The condition does not hold."""
    return z3.Not(condition) if z3.is_expr(condition) else not condition


def differ(one: Formula, other: Formula) -> Formula:
    """Exactly one of two conditions holds: the counterexample of an equivalence."""
    return either(every(one, no(other)), every(other, no(one)))


def choose(condition: Formula, one: Number, other: Number) -> Number:
    """`one` where the condition holds, else `other`."""
    if not z3.is_expr(condition):
        return one if condition else other
    return z3.If(condition, one, other)


def floor_divided(dividend: Number, divisor: Number) -> Number:
    """Python's `dividend // divisor`; the divisor is positive."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    # `/` of z3 integers rounds down only if the divisor is positive; else it differs from Python.
    return dividend / divisor


# --- overlap --------------------------------------------------------------------------------------


def share_a_byte(scope: Scope, x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """An element of `x` and an element of `y` have a byte in common."""
    i, j = index(scope, "i", x), index(scope, "j", y)
    # Two elements share a byte if neither ends before the other begins.
    distance = y.address(j) - x.address(i)
    return [*inside(i, x), *inside(j, y), distance < x.itemsize, distance > -y.itemsize]


def overlaps_itself(scope: Scope, x: SymbolicView) -> list[Formula]:
    """Two different elements of `x` have the same address."""
    i, j = index(scope, "i", x), index(scope, "j", x)
    # A view without dims has one element, so there is no different one.
    different = (
        either(*(one != other for one, other in zip(i, j, strict=True))) if x.dims else False
    )
    return [*inside(i, x), *inside(j, x), different, x.address(i) == x.address(j)]
