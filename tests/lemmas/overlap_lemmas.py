"""Lemmas about the overlap of two regions: the steps of `aliasproof/ir/regions.py`.

The steps are restated here, not called. So these proofs are about the reasoning in the comments of
that file; tests compare its code to brute force. A step that a loop repeats is proved as one turn
of the loop (an induction step), and so for any number of dimensions.
"""

from __future__ import annotations

from functools import partial

from tests.lemmas.lemma import Lemma, LemmaCase, Statement
from tests.lemmas.lemma_formulas import (
    Formula,
    Number,
    Scope,
    SymbolicView,
    choose,
    differ,
    either,
    every,
    floor_divided,
    inside,
    no,
    view,
)

SOURCE = "aliasproof/ir/regions.py"


def own_lemma(
    name: str,
    source: str,
    claim: str,
    *cases: LemmaCase,
    ranges: str = "all integers, any number of dims",
) -> Lemma:
    """A lemma about a step of our own code; no torch function takes it."""
    return Lemma(name, source, claim, ranges, cases)


# --- from two regions to one sum ------------------------------------------------------------------


def _interval(x: SymbolicView, item: Number) -> tuple[Number, Number]:
    """The first byte and one past the last, of a view whose offset and strides count bytes."""
    low = high = x.offset
    for size, stride in zip(x.sizes, x.strides, strict=True):
        # A negative stride extends the interval downwards.
        low = low + choose(stride < 0, (size - 1) * stride, 0)
        high = high + choose(stride < 0, 0, (size - 1) * stride)
    return low, high + item


def _nonempty(x: SymbolicView) -> list[Formula]:
    return [size >= 1 for size in x.sizes]


def _reach_of_a_dim(scope: Scope) -> Statement:
    """A step along a dim stays within what the dim adds to either end of the interval."""
    i, size, stride = scope("i"), scope("size"), scope("stride")
    whole = (size - 1) * stride  # what the dim adds, upwards or downwards
    stays = every(
        choose(stride < 0, whole, 0) <= i * stride, i * stride <= choose(stride < 0, 0, whole)
    )
    return Statement([i >= 0, i < size], [no(stays)])


def _touching(scope: Scope) -> Statement:
    """Elements are inside their intervals, and touching intervals have no common byte."""
    low_x, end_x, item_x, at_x = (
        scope(f"{name}_x") for name in ("low", "end", "itemsize", "element")
    )
    low_y, end_y, item_y, at_y = (
        scope(f"{name}_y") for name in ("low", "end", "itemsize", "element")
    )
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
    # The view counts bytes: its item size is one, and the real one is a name of its own.
    x, item = view(scope, "x", dims), scope("itemsize")
    low = tuple(
        choose(stride < 0, size - 1, 0) for size, stride in zip(x.sizes, x.strides, strict=True)
    )
    high = tuple(
        choose(stride < 0, 0, size - 1) for size, stride in zip(x.sizes, x.strides, strict=True)
    )
    at_ends = every(
        x.address(low) == _interval(x, item)[0], x.address(high) + item == _interval(x, item)[1]
    )
    return Statement(
        [*_nonempty(x), item >= 1], [no(every(*inside(low, x), *inside(high, x), at_ends))]
    )


def _window(scope: Scope) -> Statement:
    """Two elements share a byte exactly if `p + q` is in a window.

    One element is `p` bytes above the low end of its region. The other is `q` bytes below the last
    element of its region.
    """
    # Counted from opposite ends, the steps of both regions add up: `p + q` is one subset sum.
    low_a, end_b, p, q = (scope(name) for name in ("low_a", "end_b", "p", "q"))
    item_a, item_b = scope("itemsize_a"), scope("itemsize_b")
    one, other = low_a + p, end_b - item_b - q
    shared = every(one < other + item_b, other < one + item_a)
    high = end_b - 1 - low_a
    low = high - (item_a - 1) - (item_b - 1)
    return Statement(
        [item_a >= 1, item_b >= 1], [differ(shared, every(low <= p + q, p + q <= high))]
    )


def _merged_dims(scope: Scope) -> Statement:
    """Two dims of one stride reach exactly what one longer dim reaches."""
    x, count_x, count_y = scope("x"), scope("count_x"), scope("count_y")
    # Take as many steps as possible in the first dim, and the rest in the second.
    first = choose(x <= count_x, x, count_x)
    split = every(first >= 0, first <= count_x, x - first >= 0, x - first <= count_y)
    return Statement(
        [count_x >= 0, count_y >= 0], [differ(every(x >= 0, x <= count_x + count_y), split)]
    )


# --- _reaches: one turn of its loop ---------------------------------------------------------------


def _widened_is_needed(scope: Scope) -> Statement:
    """If some number of steps brings a sum into the window, the sum is in the wider window."""
    total, stride, count, x, low, high = (
        scope(name) for name in ("sum", "stride", "count", "x", "low", "high")
    )
    assumptions = [
        stride >= 1,
        x >= 0,
        x <= count,
        low <= total + stride * x,
        total + stride * x <= high,
    ]
    return Statement(assumptions, [no(every(low - stride * count <= total, total <= high))])


def _widened_is_enough(scope: Scope) -> Statement:
    """A sum in the wider window enters the window with the fewest steps that reach its low end."""
    total, stride, count, low, high = (
        scope(name) for name in ("sum", "stride", "count", "low", "high")
    )
    needed = scope("needed")  # the fewest steps, rounded up
    assumptions = [stride >= 1, count >= 0, low <= high, stride <= high - low + 1]
    assumptions += [low - stride * count <= total, total <= high]
    # Rounding up, stated without a division: z3 is weak at divisions by an unknown.
    assumptions += [stride * needed >= low - total, stride * (needed - 1) < low - total]
    x = choose(needed < 0, 0, needed)  # a sum above the low end needs no step
    enters = every(x <= count, low <= total + stride * x, total + stride * x <= high)
    return Statement(assumptions, [no(enters)])


def _divided_window(scope: Scope) -> Statement:
    """A multiple is in the window exactly if its quotient is in the window divided inwards."""
    quotient, divisor, low, high = (scope(name) for name in ("quotient", "divisor", "low", "high"))
    # The low end is rounded up, the high end down: `-(-low // divisor)` in the code.
    inner = every(
        quotient >= -floor_divided(-low, divisor), quotient <= floor_divided(high, divisor)
    )
    outer = every(low <= divisor * quotient, divisor * quotient <= high)
    return Statement([divisor >= 1], [differ(inner, outer)])


def _choices(scope: Scope) -> Statement:
    """The numbers of steps that `_search` does not try cannot lead into the window."""
    stride, count, x, rest, most = (
        scope(name) for name in ("stride", "count", "x", "rest", "most")
    )
    low, high = scope("low"), scope("high")
    assumptions = [stride >= 1, x >= 0, x <= count, rest >= 0, rest <= most]
    assumptions += [low <= stride * x + rest, stride * x + rest <= high]
    # The range of the code, without its bounds 0 and `count`, which are assumptions here.
    tried = every(x >= -floor_divided(most - low, stride), x <= floor_divided(high, stride))
    return Statement(assumptions, [no(tried)])


def _other_end(scope: Scope) -> Statement:
    """Counted down from the largest sum, the window is its mirror image."""
    total, largest, low, high = (scope(name) for name in ("sum", "largest", "low", "high"))
    mirrored = every(largest - high <= largest - total, largest - total <= largest - low)
    return Statement(
        [total >= 0, total <= largest], [differ(every(low <= total, total <= high), mirrored)]
    )


def _leaps(scope: Scope) -> Statement:
    """One turn of `_sums_within`: a leap extends the reached numbers of steps without a gap.

    0 to `done` steps are reached. A leap of at most `done + 1` steps reaches 0 to `done + leap`.
    """
    done, leap, x = scope("done"), scope("leap"), scope("x")
    # Without the leap, or with it once: the or of a bit set and its shift.
    reached = either(every(x >= 0, x <= done), every(x >= leap, x <= done + leap))
    return Statement(
        [done >= 0, leap >= 1, leap <= done + 1],
        [differ(reached, every(x >= 0, x <= done + leap))],
    )


OVERLAP_LEMMAS: tuple[Lemma, ...] = (
    own_lemma(
        "touching intervals",
        f"{SOURCE}: overlap",
        "one ends where the other begins, or before: disjoint",
        LemmaCase("reach", _reach_of_a_dim),
        LemmaCase("apart", _touching),
    ),
    own_lemma(
        "ends of an interval",
        f"{SOURCE}: overlap",
        "the bytes at both ends belong to the region",
        *(LemmaCase(f"{dims} dims", partial(_ends_are_bytes, dims=dims)) for dims in (1, 2, 3)),
        ranges="1 to 3 dims, all starts, sizes, item sizes, strides of any sign",
    ),
    own_lemma(
        "window",
        f"{SOURCE}: overlap",
        "elements share a byte exactly where p + q is in the window",
        LemmaCase("all", _window),
    ),
    own_lemma(
        "equal strides",
        f"{SOURCE}: _add_terms",
        "dims of one stride act as one longer dim",
        LemmaCase("all", _merged_dims),
    ),
    own_lemma(
        "window widening",
        f"{SOURCE}: _reaches",
        "steps no longer than the window widen it, and no more",
        LemmaCase("needed", _widened_is_needed),
        LemmaCase("enough", _widened_is_enough),
    ),
    own_lemma(
        "common divisor",
        f"{SOURCE}: _reaches",
        "window and strides divided by it: the same answer",
        LemmaCase("all", _divided_window),
    ),
    own_lemma(
        "choices",
        f"{SOURCE}: _search",
        "numbers of steps left out lead nowhere",
        LemmaCase("all", _choices),
    ),
    own_lemma(
        "other end",
        f"{SOURCE}: _search",
        "counted from the largest sum: the same answer",
        LemmaCase("all", _other_end),
    ),
    own_lemma(
        "leaps",
        f"{SOURCE}: _sums_within",
        "leaps of 1, 2, 4, ... and a rest make every number of steps",
        LemmaCase("all", _leaps),
    ),
)
