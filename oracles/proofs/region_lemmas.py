"""Lemmas about our own shortcuts: the steps of `programs/regions.py` and of `reference_pass/regions.py`.

Both are restated here, not called: the proofs are of the reasoning in the comments of those files.
Tests hold the code itself against brute force. Steps that a loop repeats are proved as one turn of
the loop (an induction step), and so for any number of dims.
"""

from __future__ import annotations

from functools import partial

from oracles.proofs.lemmas import (
    Formula,
    Lemma,
    LemmaCase,
    Number,
    Scope,
    Statement,
    SymbolicView,
    choose,
    either,
    every,
    floor_divided,
    inside,
    no,
    view,
)

OURS = "programs/regions.py"
REFERENCE = "reference_pass/regions.py"

_ANY = "all starts, sizes, item sizes, strides of any sign"


# --- programs.regions: from two regions to one sum ------------------------------------------------


def _interval(x: SymbolicView, item: Number) -> tuple[Number, Number]:
    """The lowest byte and one past the highest, of a view whose offset and strides count bytes."""
    low = high = x.offset
    for size, stride in zip(x.sizes, x.strides, strict=True):
        low = low + choose(stride < 0, (size - 1) * stride, 0)
        high = high + choose(stride < 0, 0, (size - 1) * stride)
    return low, high + item


def _nonempty(*views: SymbolicView) -> list[Formula]:
    return [size >= 1 for x in views for size in x.sizes]


def _reach_of_a_dim(scope: Scope) -> Statement:
    """A step along a dim stays within what the dim adds to either end of the interval."""
    i, size, stride = scope("i"), scope("size"), scope("stride")
    whole = (size - 1) * stride
    stays = every(
        choose(stride < 0, whole, 0) <= i * stride, i * stride <= choose(stride < 0, 0, whole)
    )
    return Statement([i >= 0, i < size], [no(stays)])


def _touching(scope: Scope) -> Statement:
    """Elements lie in their intervals, and intervals that touch hold no common byte."""
    low_x, end_x, item_x, at_x = (
        scope(f"{name}_x") for name in ("low", "end", "itemsize", "element")
    )
    low_y, end_y, item_y, at_y = (
        scope(f"{name}_y") for name in ("low", "end", "itemsize", "element")
    )
    premises = [
        item_x >= 1,
        item_y >= 1,
        low_x <= at_x,
        at_x + item_x <= end_x,
        low_y <= at_y,
        at_y + item_y <= end_y,
    ]
    return Statement([*premises, end_x <= low_y], [at_x < at_y + item_y, at_y < at_x + item_x])


def _ends_are_bytes(scope: Scope, dims: int) -> Statement:
    """The corner of least address is an element that begins at the low end, the opposite one ends at the high end."""
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
    """Elements p bytes above the low end of one region and q bytes below the last element of the other."""
    low_a, end_b, p, q = (scope(name) for name in ("low_a", "end_b", "p", "q"))
    item_a, item_b = scope("itemsize_a"), scope("itemsize_b")
    one, other = low_a + p, end_b - item_b - q
    shared = every(one < other + item_b, other < one + item_a)
    high = end_b - 1 - low_a
    low = high - (item_a - 1) - (item_b - 1)
    return Statement(
        [item_a >= 1, item_b >= 1], [_differ(shared, every(low <= p + q, p + q <= high))]
    )


def _merged(scope: Scope) -> Statement:
    """Steps of one stride: what two dims reach is what one longer dim reaches."""
    x, count_x, count_y = scope("x"), scope("count_x"), scope("count_y")
    first = choose(x <= count_x, x, count_x)
    split = every(first >= 0, first <= count_x, x - first >= 0, x - first <= count_y)
    return Statement(
        [count_x >= 0, count_y >= 0], [_differ(every(x >= 0, x <= count_x + count_y), split)]
    )


# --- programs.regions._reaches: one turn of its loop ----------------------------------------------


def _widened_is_needed(scope: Scope) -> Statement:
    """A sum that some number of steps brings into the window lies in the wider window."""
    total, stride, count, x, low, high = (
        scope(name) for name in ("sum", "stride", "count", "x", "low", "high")
    )
    premises = [
        stride >= 1,
        x >= 0,
        x <= count,
        low <= total + stride * x,
        total + stride * x <= high,
    ]
    return Statement(premises, [no(every(low - stride * count <= total, total <= high))])


def _widened_is_enough(scope: Scope) -> Statement:
    """A sum in the wider window comes into the window by the fewest steps that reach its low end."""
    total, stride, count, low, high = (
        scope(name) for name in ("sum", "stride", "count", "low", "high")
    )
    needed = scope("needed")  # the fewest steps, rounded up
    premises = [stride >= 1, count >= 0, low <= high, stride <= high - low + 1]
    premises += [low - stride * count <= total, total <= high]
    premises += [stride * needed >= low - total, stride * (needed - 1) < low - total]
    x = choose(needed < 0, 0, needed)
    into = every(x <= count, low <= total + stride * x, total + stride * x <= high)
    return Statement(premises, [no(into)])


def _divided(scope: Scope) -> Statement:
    """A multiple of the divisor lies in the window where the quotient lies in the window divided inwards."""
    quotient, divisor, low, high = (scope(name) for name in ("quotient", "divisor", "low", "high"))
    inner = every(
        quotient >= -floor_divided(-low, divisor), quotient <= floor_divided(high, divisor)
    )
    outer = every(low <= divisor * quotient, divisor * quotient <= high)
    return Statement([divisor >= 1], [_differ(inner, outer)])


def _choices(scope: Scope) -> Statement:
    """The numbers of steps that `_search` does not try cannot lead into the window."""
    stride, count, x, rest, most = (
        scope(name) for name in ("stride", "count", "x", "rest", "most")
    )
    low, high = scope("low"), scope("high")
    premises = [stride >= 1, x >= 0, x <= count, rest >= 0, rest <= most]
    premises += [low <= stride * x + rest, stride * x + rest <= high]
    tried = every(x >= -floor_divided(most - low, stride), x <= floor_divided(high, stride))
    return Statement(premises, [no(tried)])


def _other_end(scope: Scope) -> Statement:
    """Counted from the largest sum, the window is the mirror image."""
    total, largest, low, high = (scope(name) for name in ("sum", "largest", "low", "high"))
    mirrored = every(largest - high <= largest - total, largest - total <= largest - low)
    return Statement(
        [total >= 0, total <= largest], [_differ(every(low <= total, total <= high), mirrored)]
    )


def _leaps(scope: Scope) -> Statement:
    """`_sums_within`: with all of 0 to `done` steps reached, a leap of at most one more reaches 0 to `done + leap`."""
    done, leap, x = scope("done"), scope("leap"), scope("x")
    reached = either(every(x >= 0, x <= done), every(x >= leap, x <= done + leap))
    return Statement(
        [done >= 0, leap >= 1, leap <= done + 1],
        [_differ(reached, every(x >= 0, x <= done + leap))],
    )


# --- overlap of a region with itself --------------------------------------------------------------


def _nested(scope: Scope) -> Statement:
    """Elements that differ in the dim of a stride that steps over all below lie an element apart or more."""
    steps, below = scope("steps"), scope("below")
    stride, extent, item = scope("stride"), scope("extent"), scope("itemsize")
    premises = [
        item >= 1,
        stride >= extent,
        below <= extent - item,
        below >= item - extent,
        steps != 0,
    ]
    distance = steps * stride + below
    return Statement(premises, [distance < item, distance > -item])


def _extent(scope: Scope) -> Statement:
    """Differences of elements stay within the extent, as it grows by a dim."""
    steps, below, size = scope("steps"), scope("below"), scope("size")
    stride, extent, item = scope("stride"), scope("extent"), scope("itemsize")
    premises = [
        item >= 1,
        stride >= 0,
        below <= extent - item,
        below >= item - extent,
        steps < size,
        steps > -size,
    ]
    grown, distance = extent + (size - 1) * stride, steps * stride + below
    return Statement(premises, [no(every(distance <= grown - item, distance >= item - grown))])


def _returns(scope: Scope) -> Statement:
    """`steps` of a stride are undone up to less than an element where the shifted sum lies in the shifted window."""
    steps, stride, below, reach, item = (
        scope(name) for name in ("steps", "stride", "below", "reach", "itemsize")
    )
    distance = steps * stride + below
    total, middle = (steps - 1) * stride + (below + reach), reach - stride
    asked = every(middle - item + 1 <= total, total <= middle + item - 1)
    return Statement([item >= 1], [_differ(every(distance < item, distance > -item), asked)])


# --- reference_pass.regions -----------------------------------------------------------------------


def _dense(scope: Scope) -> Statement:
    """Each byte below `stride * size` is byte `rest` of step `at`, if all below `stride` are bytes of the dims below."""
    byte, stride, size, at, rest = (
        scope(name) for name in ("byte", "stride", "size", "at", "rest")
    )
    premises = [stride >= 1, size >= 1, byte >= 0, byte < stride * size]
    premises += [byte == at * stride + rest, rest >= 0, rest < stride]
    return Statement(premises, [no(every(at >= 0, at < size))])


def _dense_once(scope: Scope) -> Statement:
    """No byte is reached from two steps, if all dims below stay below `stride`."""
    stride, at, other, rest, other_rest = (
        scope(name) for name in ("stride", "at", "other", "rest", "other_rest")
    )
    premises = [
        stride >= 1,
        rest >= 0,
        rest < stride,
        other_rest >= 0,
        other_rest < stride,
        at != other,
    ]
    return Statement(premises, [at * stride + rest == other * stride + other_rest])


def _by_unit(scope: Scope) -> Statement:
    """Elements that begin and end at multiples of a unit share a byte where, counted in units, they share one."""
    unit, one, other = scope("unit"), scope("one"), scope("other")
    item, other_item = scope("item"), scope("other_item")
    shared = every(unit * one < unit * (other + other_item), unit * other < unit * (one + item))
    in_units = every(one < other + other_item, other < one + item)
    return Statement([unit >= 1, item >= 1, other_item >= 1], [_differ(shared, in_units)])


def _doubling(scope: Scope) -> Statement:
    """`_mask`: `done` copies or-ed with themselves, shifted by at most as many, are `done + step` copies."""
    done, step, x = scope("done"), scope("step"), scope("x")
    copied = either(every(x >= 0, x < done), every(x >= step, x < done + step))
    return Statement(
        [done >= 1, step >= 1, step <= done], [_differ(copied, every(x >= 0, x < done + step))]
    )


def _differ(one: Formula, other: Formula) -> Formula:
    return either(every(one, no(other)), every(other, no(one)))


def _step(
    name: str,
    source: str,
    claim: str,
    *cases: LemmaCase,
    ranges: str = "all integers, any number of dims",
) -> Lemma:
    return Lemma(name, source, claim, ranges, cases)


REGION_LEMMAS: tuple[Lemma, ...] = (
    _step(
        "touching intervals",
        f"{OURS}: overlap",
        "one ends where the other begins, or before: apart",
        LemmaCase("reach", _reach_of_a_dim),
        LemmaCase("apart", _touching),
    ),
    _step(
        "ends of an interval",
        f"{OURS}: overlap",
        "the bytes at both ends belong to the region",
        *(LemmaCase(f"{dims} dims", partial(_ends_are_bytes, dims=dims)) for dims in (1, 2, 3)),
        ranges=f"1 to 3 dims, {_ANY}",
    ),
    _step(
        "window",
        f"{OURS}: overlap",
        "elements share a byte exactly where p + q is in the window",
        LemmaCase("all", _window),
    ),
    _step(
        "equal strides",
        f"{OURS}: _add_terms",
        "dims of one stride act as one longer dim",
        LemmaCase("all", _merged),
    ),
    _step(
        "window widening",
        f"{OURS}: _reaches",
        "steps no longer than the window widen it, and no more",
        LemmaCase("needed", _widened_is_needed),
        LemmaCase("enough", _widened_is_enough),
    ),
    _step(
        "common divisor",
        f"{OURS}: _reaches",
        "window and strides divided by it: the same answer",
        LemmaCase("all", _divided),
    ),
    _step(
        "choices",
        f"{OURS}: _search",
        "numbers of steps left out lead nowhere",
        LemmaCase("all", _choices),
    ),
    _step(
        "other end",
        f"{OURS}: _search",
        "counted from the largest sum: the same answer",
        LemmaCase("all", _other_end),
    ),
    _step(
        "leaps",
        f"{OURS}: _sums_within",
        "leaps of 1, 2, 4, ... and a rest make every number of steps",
        LemmaCase("all", _leaps),
    ),
    _step(
        "nested strides",
        f"{OURS}: overlaps_itself; {REFERENCE}: _nested",
        "each stride steps over all below: no two elements share a byte",
        LemmaCase("apart", _nested),
        LemmaCase("extent", _extent),
    ),
    _step(
        "undone steps",
        f"{OURS}: _returns",
        "steps are undone where the shifted sum is in the window, only there",
        LemmaCase("all", _returns),
    ),
    _step(
        "dense",
        f"{REFERENCE}: is_dense",
        "each stride is as long as all below: every byte, and each once",
        LemmaCase("every", _dense),
        LemmaCase("once", _dense_once),
    ),
    _step(
        "common unit",
        f"{REFERENCE}: _masks",
        "all divided by a common unit: the same answer",
        LemmaCase("all", _by_unit),
    ),
    _step(
        "doubling",
        f"{REFERENCE}: _mask",
        "shifts by 1, 2, 4, ... and a rest make every copy",
        LemmaCase("all", _doubling),
    ),
)
