"""Lemmas about our own shortcuts for regions, of the harness and of the reference pass.

`tests/lemmas/overlap_lemmas.py` has those about the overlap of two regions. Here are those
about the overlap of a region with itself, and those that only the reference pass needs. As there,
the steps are restated, not called.
"""

from __future__ import annotations

from tests.lemmas.lemma import Lemma, LemmaCase, Statement
from tests.lemmas.lemma_formulas import Scope, differ, either, every, no
from tests.lemmas.overlap_lemmas import OVERLAP_LEMMAS, SOURCE, own_lemma

REFERENCE_SOURCE = "reference_pass/calls/regions.py"

# --- overlap of a region with itself --------------------------------------------------------------


def _nested_dims(scope: Scope) -> Statement:
    """Elements that differ in a dim are at least one element apart, if its stride is long enough.

    Long enough means: as long as the extent of all dims with smaller strides, in bytes.
    """
    steps, below = scope("steps"), scope("below")
    stride, extent, item = scope("stride"), scope("extent"), scope("itemsize")
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
    steps, below, size = scope("steps"), scope("below"), scope("size")
    stride, extent, item = scope("stride"), scope("extent"), scope("itemsize")
    assumptions = [
        item >= 1,
        stride >= 0,
        below <= extent - item,
        below >= item - extent,
        steps < size,
        steps > -size,
    ]
    grown, distance = extent + (size - 1) * stride, steps * stride + below
    return Statement(assumptions, [no(every(distance <= grown - item, distance >= item - grown))])


def _returns(scope: Scope) -> Statement:
    """Some steps lead back to within an element exactly if a shifted sum is in a shifted window.

    `below` is the sum of the other dims, at least `-reach`. The shift makes sums start from 0, as
    `_reaches` expects.
    """
    steps, stride, below, reach, item = (
        scope(name) for name in ("steps", "stride", "below", "reach", "itemsize")
    )
    distance = steps * stride + below
    # The code counts one step less, since at least one step is taken.
    total, middle = (steps - 1) * stride + (below + reach), reach - stride
    asked = every(middle - item + 1 <= total, total <= middle + item - 1)
    return Statement([item >= 1], [differ(every(distance < item, distance > -item), asked)])


# --- reference_pass.regions -----------------------------------------------------------------------


def _dense(scope: Scope) -> Statement:
    """Every byte below `stride * size` is reached.

    It is byte `rest` of step `at`, if the dims below reach all bytes below `stride`.
    """
    byte, stride, size, at, rest = (
        scope(name) for name in ("byte", "stride", "size", "at", "rest")
    )
    assumptions = [stride >= 1, size >= 1, byte >= 0, byte < stride * size]
    # Quotient and remainder are unknowns with an equation: z3 is weak at divisions by an unknown.
    assumptions += [byte == at * stride + rest, rest >= 0, rest < stride]
    return Statement(assumptions, [no(every(at >= 0, at < size))])


def _dense_once(scope: Scope) -> Statement:
    """No byte is reached from two steps, if all dims below stay below `stride`."""
    stride, at, other, rest, other_rest = (
        scope(name) for name in ("stride", "at", "other", "rest", "other_rest")
    )
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
    unit, one, other = scope("unit"), scope("one"), scope("other")
    item, other_item = scope("item"), scope("other_item")
    # Starts and ends are multiples of the unit, so a byte is shared only if a whole unit is.
    shared = every(unit * one < unit * (other + other_item), unit * other < unit * (one + item))
    in_units = every(one < other + other_item, other < one + item)
    return Statement([unit >= 1, item >= 1, other_item >= 1], [differ(shared, in_units)])


def _doubling(scope: Scope) -> Statement:
    """One turn of `_mask`: a shift by at most `done` copies leaves no gap.

    `done` copies, or-ed with themselves shifted by `step` copies, are `done + step` copies.
    """
    done, step, x = scope("done"), scope("step"), scope("x")
    copied = either(every(x >= 0, x < done), every(x >= step, x < done + step))
    return Statement(
        [done >= 1, step >= 1, step <= done], [differ(copied, every(x >= 0, x < done + step))]
    )


REGION_LEMMAS: tuple[Lemma, ...] = (
    *OVERLAP_LEMMAS,
    own_lemma(
        "nested strides",
        f"{SOURCE}: overlaps_itself; {REFERENCE_SOURCE}: _nested",
        "each stride is as long as all dims below: no two elements share a byte",
        LemmaCase("apart", _nested_dims),
        LemmaCase("extent", _extent),
    ),
    own_lemma(
        "undone steps",
        f"{SOURCE}: _returns",
        "steps are undone where the shifted sum is in the window, only there",
        LemmaCase("all", _returns),
    ),
    own_lemma(
        "dense",
        f"{REFERENCE_SOURCE}: is_dense",
        "each stride is as long as all dims below: every byte, and each once",
        LemmaCase("every", _dense),
        LemmaCase("once", _dense_once),
    ),
    own_lemma(
        "common unit",
        f"{REFERENCE_SOURCE}: _masks",
        "all divided by a common unit: the same answer",
        LemmaCase("all", _by_unit),
    ),
    own_lemma(
        "doubling",
        f"{REFERENCE_SOURCE}: _mask",
        "shifts by 1, 2, 4, ... and a rest make every copy",
        LemmaCase("all", _doubling),
    ),
)
