"""Lemmas about torch's predicate for two disjoint tensors, one for each branch of its case split.

`tensors_definitely_do_not_overlap` (torch/csrc/dynamo/guards.cpp) is restated as `SAYS_DISJOINT`.
It is compiled code behind `compute_overlapping_tensors`, which tests compare to the restatement.
Its first argument `x` is the view of the smaller offset, *in elements*. Three passes ask it:

- AOTAutograd, of inputs that share a storage (`merge_view_inputs`): inputs that it finds disjoint
  get no common base;
- the dynamo guard StorageOverlap, which asks again on later calls;
- Inductor's reinplacing, of views of a tensor that it wants to overwrite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TypeAlias

import torch
from torch._C._dynamo.guards import compute_overlapping_tensors

from tests.lemmas.lemma import Lemma, LemmaCase, Statement
from tests.lemmas.lemma_formulas import (
    Formula,
    Number,
    Scope,
    SymbolicView,
    either,
    every,
    index,
    inside,
    no,
    share_a_byte,
    view,
)
from tests.lemmas.lemma_programs import write_one_read_other

# The conditions under which the predicate takes one branch.
Branch: TypeAlias = Callable[[SymbolicView, SymbolicView], list[Formula]]

SOURCE = "torch/csrc/dynamo/guards.cpp: tensors_definitely_do_not_overlap"

_ALL_LAYOUTS = "all sizes, strides, offsets"
_UP_TO_3 = tuple(product((1, 2, 3), (1, 2, 3)))
_ITEMS = (1, 2, 4, 8)
_MIXED = tuple((one, other) for one in _ITEMS for other in _ITEMS if one != other)


# --- the predicate, branch by branch --------------------------------------------------------------


def strided(*views: SymbolicView) -> list[Formula]:
    """What torch guarantees of any strided tensor."""
    return [number >= 0 for x in views for number in (x.offset, *x.sizes, *x.strides)]


def is_contiguous(x: SymbolicView) -> Formula:
    """What `Tensor.is_contiguous()` says of a tensor with elements."""
    # A dim of size one can have any stride, as in torch.
    conditions, expected = [], 1
    for size, stride in zip(reversed(x.sizes), reversed(x.strides), strict=True):
        conditions.append(either(size == 1, stride == expected))
        expected = expected * size
    return every(*conditions)


def _after_first_two(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """What is known after the first two branches: views are in order, and both have elements."""
    return [x.offset <= y.offset, *(size >= 1 for size in (*x.sizes, *y.sizes))]


def _not_both_contiguous(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [*_after_first_two(x, y), no(every(is_contiguous(x), is_contiguous(y)))]


def either_empty(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """The branch: one view has no elements."""
    return [either(x.numel == 0, y.numel == 0)]


def contiguous_one_after_the_other(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """The branch: both are contiguous, and `x` ends at the offset of `y` or before."""
    return [
        *_after_first_two(x, y),
        is_contiguous(x),
        is_contiguous(y),
        x.offset + x.numel <= y.offset,
    ]


def last(x: SymbolicView) -> Number:
    """The offset of the last element, in elements."""
    return x.offset + sum(
        (size - 1) * stride for size, stride in zip(x.sizes, x.strides, strict=True)
    )


def ends_before(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """The branch: not both contiguous, and the last element of `x` is before the first of `y`."""
    return [*_not_both_contiguous(x, y), last(x) < y.offset]


def _in_rows(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """No branch above is taken, and both views are rows of one matrix.

    That is: two dimensions, inner strides of one, equal outer strides, and row 0 of `x` ends before
    `y` begins.
    """
    if (x.dims, y.dims) != (2, 2):
        return [False]  # the branch is not taken for other numbers of dims
    delta = y.offset - x.offset
    return [
        *_not_both_contiguous(x, y),
        last(x) >= y.offset,
        x.strides[1] == 1,
        y.strides[1] == 1,
        x.strides[0] == y.strides[0],
        delta >= x.sizes[1],
    ]


def rows_end_before(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """The branch: rows of one matrix, and all of `x` is before `y`."""
    known = _in_rows(x, y)
    if x.dims != 2:
        return known
    return [*known, x.strides[0] * (x.sizes[0] - 1) + x.sizes[1] <= y.offset - x.offset]


def rows_between(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """The branch: rows of one matrix, and row 0 of `y` fits before the next row of `x`.

    Row 0 of `y` is moved back by whole rows first.
    """
    known = _in_rows(x, y)
    if x.dims != 2 or y.dims != 2:
        return known
    stride, delta = x.strides[0], y.offset - x.offset
    # The branch before was not taken: `x` has rows after the start of `y`.
    some_left = stride * (x.sizes[0] - 1) + x.sizes[1] > delta
    return [*known, some_left, _modulo(delta, stride) + y.sizes[1] <= stride]


def _modulo(number: Number, divisor: Number) -> Number:
    """The remainder; any number for a divisor of zero, which lemma 'modulus' excludes."""
    return number if isinstance(divisor, int) and divisor == 0 else number % divisor


# All branches that say "definitely disjoint".
SAYS_DISJOINT: tuple[Branch, ...] = (
    either_empty,
    contiguous_one_after_the_other,
    ends_before,
    rows_end_before,
    rows_between,
)


def torch_says_disjoint(pair: Sequence[torch.Tensor]) -> bool:
    """What the installed predicate says of two tensors that share a storage."""
    return not compute_overlapping_tensors(list(pair), symbolic=False)


# --- statements: where a branch says "disjoint", no byte is in both -------------------------------


def sound(
    name: str,
    claim: str,
    branch: Branch,
    dims: Sequence[tuple[int, int]],
    items: Sequence[tuple[int, int]] = ((1, 1),),
    first: Branch | None = None,
) -> Lemma:
    """Where this branch says "definitely disjoint", no byte is in both views.

    Views of one item size are stated with elements of one byte. Lemma 'one item size' says why that
    is enough. `first` narrows the first question, so that a program can use its counterexample.
    """
    # Narrowed cases first: the first refuted case gives the counterexample.
    cases = [
        LemmaCase(
            f"{ranks[0]} and {ranks[1]} dims, {sizes[0]} and {sizes[1]} bytes",
            partial(_no_byte_in_both, branch=branch, ranks=ranks, items=sizes, narrowed=narrowed),
        )
        for narrowed in ((first, None) if first else (None,))
        for ranks, sizes in product(dims, items)
    ]
    # The text for people, such as "1x1 to 3x3 dims, one item size".
    least, most = min(dims), max(dims)
    spans = (
        f"{most[0]}x{most[1]}" if least == most else f"{least[0]}x{least[1]} to {most[0]}x{most[1]}"
    )
    sizes_text = "one item size" if len(items) == 1 else "two item sizes of 1 to 8"
    ranges = f"{spans} dims, {sizes_text}, {_ALL_LAYOUTS}"
    return Lemma(
        name, SOURCE, claim, ranges, tuple(cases), torch_says_disjoint, write_one_read_other
    )


def _no_byte_in_both(
    scope: Scope,
    branch: Branch,
    ranks: tuple[int, int],
    items: tuple[int, int],
    narrowed: Branch | None,
) -> Statement:
    x, y = (
        view(scope, name, rank, item) for name, rank, item in zip("xy", ranks, items, strict=True)
    )
    also = narrowed(x, y) if narrowed else []
    return Statement([*strided(x, y), *branch(x, y), *also], share_a_byte(scope, x, y), (x, y))


def _rows_disjoint(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """Neither view overlaps itself, so that eager may write it."""
    return [x.strides[0] >= x.sizes[1], y.strides[0] >= y.sizes[1]]


def _rows_between_repaired(scope: Scope) -> Statement:
    """Branch `rows_between` with the condition that it lacks.

    Row 0 of `y` must also begin after the end of the row of `x` that it falls into.
    """
    # z3 needs two hints: quotient and remainder as unknowns, and how many rows the two elements
    # are apart.
    stride, whole_rows, rest = scope("stride"), scope("whole_rows"), scope("rest")
    x = SymbolicView(scope("x.offset"), (scope("x.size0"), scope("x.size1")), (stride, 1))
    offset = x.offset + whole_rows * stride + rest
    y = SymbolicView(offset, (scope("y.size0"), scope("y.size1")), (stride, 1))
    i, j = index(scope, "i", x), index(scope, "j", y)
    assumptions = [
        *strided(x, y),
        rest >= 0,
        rest < stride,
        rest >= x.sizes[1],
        rest + y.sizes[1] <= stride,
    ]
    shared = [
        *inside(i, x),
        *inside(j, y),
        i[0] == j[0] + whole_rows + scope("rows_apart"),
        x.address(i) == y.address(j),
    ]
    return Statement(assumptions, shared, (x, y))


def _modulus_is_positive(scope: Scope) -> Statement:
    x, y = view(scope, "x", 2), view(scope, "y", 2)
    delta = y.offset - x.offset
    # The division is reached only if the branch before, `rows_end_before`, is not taken.
    left = x.strides[0] * (x.sizes[0] - 1) + x.sizes[1] > delta
    return Statement([*strided(x, y), *_in_rows(x, y), left], [x.strides[0] <= 0], (x, y))


# --- statements: where it says "overlap", there is one --------------------------------------------


def _contiguous_says_overlap(scope: Scope, dims: int) -> Statement:
    x, y = view(scope, "x", dims), view(scope, "y", dims)
    assumptions = [
        *strided(x, y),
        *_after_first_two(x, y),
        is_contiguous(x),
        is_contiguous(y),
        x.offset + x.numel > y.offset,
    ]
    # The first element of y is the element of x at position delta. Its index tuple is written as
    # unknowns with equations, digit by digit, since z3 is weak at divisions by an unknown.
    position = y.offset - x.offset
    at: list[Number] = []
    for size in reversed(x.sizes):
        digit = scope(f"i{len(at)}")
        rest = scope(f"rest{len(at)}")
        assumptions += [position == rest * size + digit, digit >= 0, digit < size]
        at.append(digit)
        position = rest
    i = tuple(reversed(at))
    shared = every(*inside(i, x), x.address(i) == y.address((0,) * dims))
    return Statement(assumptions, [no(shared)], (x, y))


def _row_0_says_overlap(scope: Scope) -> Statement:
    x, y = view(scope, "x", 2), view(scope, "y", 2)
    delta = y.offset - x.offset
    # With an inner stride of one, the element at this distance is in row 0.
    assumptions = [*strided(x, y), *_after_first_two(x, y), x.strides[1] == 1, delta < x.sizes[1]]
    shared = every(*inside((0, delta), x), x.address((0, delta)) == y.address((0, 0)))
    return Statement(assumptions, [no(shared)], (x, y))


def _same_or_disjoint(scope: Scope) -> Statement:
    """Two elements of one item size, at multiples of it, share a byte only if they are the same."""
    # An equivalence: the counterexample is either direction.
    item, distance = scope("itemsize"), scope("distance")
    shared = every(item * distance < item, item * distance > -item)
    return Statement(
        [item >= 1], [either(every(shared, distance != 0), every(no(shared), distance == 0))]
    )


DISJOINT_LEMMAS: tuple[Lemma, ...] = (
    Lemma(
        "one item size",
        SOURCE,
        "elements of one storage and item size share a byte exactly if they are the same",
        "any item size",
        (LemmaCase("all", _same_or_disjoint),),
    ),
    sound("empty", "a view without elements shares no byte", either_empty, _UP_TO_3),
    sound(
        "contiguous",
        "x.offset + x.numel <= y.offset: disjoint",
        contiguous_one_after_the_other,
        _UP_TO_3,
    ),
    sound(
        "contiguous, mixed",
        "x.offset + x.numel <= y.offset: disjoint",
        contiguous_one_after_the_other,
        ((1, 1),),
        _MIXED,
    ),
    sound("last before first", "x_last < y.offset: disjoint", ends_before, _UP_TO_3),
    sound(
        "last before first, mixed", "x_last < y.offset: disjoint", ends_before, ((1, 1),), _MIXED
    ),
    sound(
        "rows: all before",
        "x_total_elems_covered <= offset_delta: disjoint",
        rows_end_before,
        ((2, 2),),
    ),
    sound(
        "rows: between",
        "delta % stride + y.size(1) <= stride: disjoint",
        rows_between,
        ((2, 2),),
        first=_rows_disjoint,
    ),
    Lemma(
        "rows: between, repaired",
        SOURCE,
        "x.size(1) <= delta % stride and delta % stride + y.size(1) <= stride: disjoint",
        f"2x2 dims, one item size, {_ALL_LAYOUTS}",
        (LemmaCase("2 dims", _rows_between_repaired),),
    ),
    Lemma(
        "rows: modulus",
        SOURCE,
        "no division by zero",
        f"2x2 dims, {_ALL_LAYOUTS}",
        (LemmaCase("2 dims", _modulus_is_positive),),
    ),
    Lemma(
        "contiguous: overlap",
        SOURCE,
        "x.offset + x.numel > y.offset: the first element of y is in x",
        f"1 and 2 dims, one item size, {_ALL_LAYOUTS}",
        tuple(
            LemmaCase(f"{dims} dims", partial(_contiguous_says_overlap, dims=dims))
            for dims in (1, 2)
        ),
    ),
    Lemma(
        "rows: overlap",
        SOURCE,
        "offset_delta < x.size(1): the first element of y is in row 0 of x",
        f"2x2 dims, one item size, {_ALL_LAYOUTS}",
        (LemmaCase("2 dims", _row_0_says_overlap),),
    ),
)
