"""Lemmas about our own shortcuts for regions, of the harness and of the reference pass.

They are the steps of `aliasproof/ir/regions.py` and of `reference_pass/calls/regions.py`. The steps
are restated here, not called. So these proofs are about the reasoning in the comments of those
files; tests compare the code to brute force. A step that a loop repeats is proved as one turn of
the loop (an induction step), and so for any number of dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import z3

from tests.lemmas.lemma import Lemma, Number, Scope, Statement, named


@dataclass(frozen=True, slots=True)
class View:
    """A strided view, whose offset and strides count bytes."""

    offset: Number
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]

    @classmethod
    def of(cls, scope: Scope, dims: int) -> "View":
        numbers = [
            tuple(scope(f"{name}{dim}") for dim in range(dims)) for name in ("size", "stride")
        ]
        return cls(scope("offset"), *numbers)

    def address(self, index: Sequence[Number]) -> Number:
        """The first byte of an element."""
        return self.offset + sum(step * i for step, i in zip(self.strides, index, strict=True))


# --- from two regions to one sum ------------------------------------------------------------------


def _interval(x: View, item: Number) -> tuple[Number, Number]:
    """The first byte and one past the last, of a view whose offset and strides count bytes."""
    low = high = x.offset
    for size, stride in zip(x.sizes, x.strides, strict=True):
        # A negative stride extends the interval downwards.
        low = low + z3.If(stride < 0, (size - 1) * stride, 0)
        high = high + z3.If(stride < 0, 0, (size - 1) * stride)
    return low, high + item


def _reach_of_a_dim(scope: Scope) -> Statement:
    """A step along a dim stays within what the dim adds to either end of the interval."""
    i, size, stride = named(scope, "i size stride")
    whole = (size - 1) * stride  # what the dim adds, upwards or downwards
    stays = z3.And(
        z3.If(stride < 0, whole, 0) <= i * stride, i * stride <= z3.If(stride < 0, 0, whole)
    )
    return Statement([i >= 0, i < size], [z3.Not(stays)])


def _touching(scope: Scope) -> Statement:
    """Elements are inside their intervals, and touching intervals have no common byte."""
    low_x, end_x, item_x, at_x = named(scope, "low_x end_x itemsize_x element_x")
    low_y, end_y, item_y, at_y = named(scope, "low_y end_y itemsize_y element_y")
    assumptions = [
        item_x >= 1,
        item_y >= 1,
        # Each element is inside the interval of its region.
        low_x <= at_x,
        at_x + item_x <= end_x,
        low_y <= at_y,
        at_y + item_y <= end_y,
    ]
    return Statement([*assumptions, end_x <= low_y], [at_x < at_y + item_y, at_y < at_x + item_x])


def _ends_are_bytes(scope: Scope, dims: int) -> Statement:
    """The first and the last byte of the interval belong to elements.

    The corner with the least address begins at the low end. The opposite corner ends at the high
    end.
    """
    x, item = View.of(scope, dims), scope("itemsize")
    low = tuple(
        z3.If(stride < 0, size - 1, 0) for size, stride in zip(x.sizes, x.strides, strict=True)
    )
    high = tuple(
        z3.If(stride < 0, 0, size - 1) for size, stride in zip(x.sizes, x.strides, strict=True)
    )
    inside = [
        bound
        for index in (low, high)
        for i, size in zip(index, x.sizes, strict=True)
        for bound in (i >= 0, i < size)
    ]
    start, end = _interval(x, item)
    at_ends = z3.And(x.address(low) == start, x.address(high) + item == end)
    nonempty = [size >= 1 for size in x.sizes]
    return Statement([*nonempty, item >= 1], [z3.Not(z3.And(*inside, at_ends))])


def _window(scope: Scope) -> Statement:
    """Two elements share a byte exactly if `p + q` is in a window.

    One element is `p` bytes above the low end of its region. The other is `q` bytes below the last
    element of its region.
    """
    # Counted from opposite ends, the steps of both regions add up: `p + q` is one subset sum.
    low_a, end_b, p, q = named(scope, "low_a end_b p q")
    item_a, item_b = scope("itemsize_a"), scope("itemsize_b")
    one, other = low_a + p, end_b - item_b - q
    shared = z3.And(one < other + item_b, other < one + item_a)
    high = end_b - 1 - low_a
    low = high - (item_a - 1) - (item_b - 1)
    return Statement(
        [item_a >= 1, item_b >= 1], [z3.Xor(shared, z3.And(low <= p + q, p + q <= high))]
    )


def _merged_dims(scope: Scope) -> Statement:
    """Two dims of one stride reach exactly what one longer dim reaches."""
    x, count_x, count_y = named(scope, "x count_x count_y")
    # Take as many steps as possible in the first dim, and the rest in the second.
    first = z3.If(x <= count_x, x, count_x)
    split = z3.And(first >= 0, first <= count_x, x - first >= 0, x - first <= count_y)
    return Statement(
        [count_x >= 0, count_y >= 0], [z3.Xor(z3.And(x >= 0, x <= count_x + count_y), split)]
    )


# --- _reaches: one turn of its loop ---------------------------------------------------------------


def _widened_is_needed(scope: Scope) -> Statement:
    """If some number of steps brings a sum into the window, the sum is in the wider window."""
    total, stride, count, x, low, high = named(scope, "sum stride count x low high")
    assumptions = [
        stride >= 1,
        x >= 0,
        x <= count,
        low <= total + stride * x,
        total + stride * x <= high,
    ]
    return Statement(assumptions, [z3.Not(z3.And(low - stride * count <= total, total <= high))])


def _widened_is_enough(scope: Scope) -> Statement:
    """A sum in the wider window enters the window with the fewest steps that reach its low end."""
    total, stride, count, low, high = named(scope, "sum stride count low high")
    needed = scope("needed")  # the fewest steps, rounded up
    assumptions = [stride >= 1, count >= 0, low <= high, stride <= high - low + 1]
    assumptions += [low - stride * count <= total, total <= high]
    # Rounding up, stated without a division: z3 is weak at divisions by an unknown.
    assumptions += [stride * needed >= low - total, stride * (needed - 1) < low - total]
    x = z3.If(needed < 0, 0, needed)  # a sum above the low end needs no step
    enters = z3.And(x <= count, low <= total + stride * x, total + stride * x <= high)
    return Statement(assumptions, [z3.Not(enters)])


def _divided_window(scope: Scope) -> Statement:
    """A multiple is in the window exactly if its quotient is in the window divided inwards."""
    quotient, divisor, low, high = named(scope, "quotient divisor low high")
    # The low end is rounded up, the high end down: `-(-low // divisor)` in the code.
    inner = z3.And(quotient >= -(-low / divisor), quotient <= high / divisor)
    outer = z3.And(low <= divisor * quotient, divisor * quotient <= high)
    return Statement([divisor >= 1], [z3.Xor(inner, outer)])


def _choices(scope: Scope) -> Statement:
    """The numbers of steps that `_search` does not try cannot lead into the window."""
    stride, count, x, rest, most = named(scope, "stride count x rest most")
    low, high = scope("low"), scope("high")
    assumptions = [stride >= 1, x >= 0, x <= count, rest >= 0, rest <= most]
    assumptions += [low <= stride * x + rest, stride * x + rest <= high]
    # The range of the code, without its bounds 0 and `count`, which are assumptions here.
    # `/` of z3 integers is `//` of Python if the divisor is positive.
    tried = z3.And(x >= -((most - low) / stride), x <= high / stride)
    return Statement(assumptions, [z3.Not(tried)])


def _other_end(scope: Scope) -> Statement:
    """Counted down from the largest sum, the window is its mirror image."""
    total, largest, low, high = named(scope, "sum largest low high")
    mirrored = z3.And(largest - high <= largest - total, largest - total <= largest - low)
    return Statement(
        [total >= 0, total <= largest], [z3.Xor(z3.And(low <= total, total <= high), mirrored)]
    )


def _leaps(scope: Scope) -> Statement:
    """One turn of `_sums_within`: a leap extends the reached numbers of steps without a gap.

    0 to `done` steps are reached. A leap of at most `done + 1` steps reaches 0 to `done + leap`. So
    does one turn of `_mask`: `done + 1` copies, or-ed with themselves shifted by `leap` copies.
    """
    done, leap, x = named(scope, "done leap x")
    # Without the leap, or with it once: the or of a bit set and its shift.
    reached = z3.Or(z3.And(x >= 0, x <= done), z3.And(x >= leap, x <= done + leap))
    return Statement(
        [done >= 0, leap >= 1, leap <= done + 1],
        [z3.Xor(reached, z3.And(x >= 0, x <= done + leap))],
    )


# --- overlap of a region with itself --------------------------------------------------------------


def _nested_dims(scope: Scope) -> Statement:
    """Elements that differ in a dim are at least one element apart, if its stride is long enough.

    Long enough means: as long as the extent of all dims with smaller strides, in bytes.
    """
    steps, below = scope("steps"), scope("below")
    stride, extent, item = named(scope, "stride extent itemsize")
    assumptions = [
        item >= 1,
        stride >= extent,
        below <= extent - item,
        below >= item - extent,
        steps != 0,
    ]
    # `below` is what all smaller strides add; it stays within their extent.
    distance = steps * stride + below
    return Statement(assumptions, [distance < item, distance > -item])


def _extent(scope: Scope) -> Statement:
    """A dim adds `(size - 1) * stride` to the extent; distances of elements stay within it."""
    steps, below, size, stride = named(scope, "steps below size stride")
    extent, item = named(scope, "extent itemsize")
    assumptions = [
        item >= 1,
        stride >= 0,
        below <= extent - item,
        below >= item - extent,
        steps < size,
        steps > -size,
    ]
    grown, distance = extent + (size - 1) * stride, steps * stride + below
    return Statement(
        assumptions, [z3.Not(z3.And(distance <= grown - item, distance >= item - grown))]
    )


def _returns(scope: Scope) -> Statement:
    """Some steps lead back to within an element exactly if a shifted sum is in a shifted window.

    `below` is the sum of the other dims, at least `-reach`. The shift makes sums start from 0, as
    `_reaches` expects.
    """
    steps, stride, below, reach, item = named(scope, "steps stride below reach itemsize")
    distance = steps * stride + below
    # The code counts one step less, since at least one step is taken.
    total, middle = (steps - 1) * stride + (below + reach), reach - stride
    asked = z3.And(middle - item + 1 <= total, total <= middle + item - 1)
    return Statement([item >= 1], [z3.Xor(z3.And(distance < item, distance > -item), asked)])


# --- the reference pass ---------------------------------------------------------------------------


def _dense(scope: Scope) -> Statement:
    """Every byte below `stride * size` is reached.

    It is byte `rest` of step `at`, if the dims below reach all bytes below `stride`.
    """
    byte, stride, size, at, rest = named(scope, "byte stride size at rest")
    assumptions = [stride >= 1, size >= 1, byte >= 0, byte < stride * size]
    # Quotient and remainder are unknowns with an equation: z3 is weak at divisions by an unknown.
    assumptions += [byte == at * stride + rest, rest >= 0, rest < stride]
    return Statement(assumptions, [z3.Not(z3.And(at >= 0, at < size))])


def _dense_once(scope: Scope) -> Statement:
    """No byte is reached from two steps, if all dims below stay below `stride`."""
    stride, at, other, rest, other_rest = named(scope, "stride at other rest other_rest")
    assumptions = [
        stride >= 1,
        rest >= 0,
        rest < stride,
        other_rest >= 0,
        other_rest < stride,
        at != other,
    ]
    return Statement(assumptions, [at * stride + rest == other * stride + other_rest])


def _by_unit(scope: Scope) -> Statement:
    """Starts and item sizes in multiples of a unit can be counted in units: the same answer."""
    unit, one, other = named(scope, "unit one other")
    item, other_item = scope("item"), scope("other_item")
    # Starts and ends are multiples of the unit, so a byte is shared only if a whole unit is.
    shared = z3.And(unit * one < unit * (other + other_item), unit * other < unit * (one + item))
    in_units = z3.And(one < other + other_item, other < one + item)
    return Statement([unit >= 1, item >= 1, other_item >= 1], [z3.Xor(shared, in_units)])


REGION_LEMMAS: dict[str, Lemma] = {
    # `overlap`: one ends where the other begins, or before: disjoint.
    "touching intervals": {"reach": _reach_of_a_dim, "apart": _touching},
    # `overlap`: the bytes at both ends belong to the region.
    "ends of an interval": {
        f"{dims} dims": partial(_ends_are_bytes, dims=dims) for dims in (1, 2, 3)
    },
    # `overlap`: elements share a byte exactly where p + q is in the window.
    "window": {"all": _window},
    # `_add_terms`: dims of one stride act as one longer dim.
    "equal strides": {"all": _merged_dims},
    # `_reaches`: steps no longer than the window widen it, and no more.
    "window widening": {"needed": _widened_is_needed, "enough": _widened_is_enough},
    # `_reaches`: window and strides divided by it: the same answer.
    "common divisor": {"all": _divided_window},
    # `_search`: numbers of steps left out lead nowhere.
    "choices": {"all": _choices},
    # `_search`: counted from the largest sum: the same answer.
    "other end": {"all": _other_end},
    # `_sums_within`, and `_mask` of the reference pass: leaps of 1, 2, 4, ... and a rest make every
    # number of steps.
    "leaps": {"all": _leaps},
    # `overlaps_itself`, and `_nested` of the reference pass: each stride is as long as all dims
    # below: no two elements share a byte.
    "nested strides": {"apart": _nested_dims, "extent": _extent},
    # `_returns`: steps are undone where the shifted sum is in the window, only there.
    "undone steps": {"all": _returns},
    # `is_dense` of the reference pass: each stride is as long as all dims below: every byte, and
    # each once.
    "dense": {"every": _dense, "once": _dense_once},
    # `_masks` of the reference pass: all divided by a common unit: the same answer.
    "common unit": {"all": _by_unit},
}
