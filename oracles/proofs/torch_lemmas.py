"""Lemmas about the overlap predicates that torch ships, each side of each case split by itself.

Restated here are the predicates of torch 2.13. They are compiled; two can be asked from Python, so
that tests hold the restatement (`SAYS_APART`, `says_no`, `says_yes`) against what is installed:

- `tensors_definitely_do_not_overlap` (torch/csrc/dynamo/guards.cpp), behind
  `compute_overlapping_tensors`. AOTAutograd asks it of inputs that share a storage
  (`merge_view_inputs`: inputs held apart get no common base), the dynamo guard StorageOverlap asks
  it again, and Inductor's reinplacing asks it of views of what it is about to overwrite.
- `has_internal_overlap` (aten/src/ATen/MemoryOverlap.cpp), behind `_debug_has_internal_overlap`:
  eager refuses to write where it says yes, the FX pass reinplaces where it does not.

`get_overlap_status` of the same file decides only whether eager raises; its one claim of
disjointness is here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import torch
from torch._C._dynamo.guards import compute_overlapping_tensors

from oracles.proofs.lemmas import (
    Formula,
    Lemma,
    LemmaCase,
    Number,
    Scope,
    Statement,
    SymbolicView,
    either,
    every,
    index,
    inside,
    invert_windows,
    no,
    overlaps_itself,
    share_a_byte,
    view,
    write_one_read_other,
)

Branch = Callable[[SymbolicView, SymbolicView], list[Formula]]

APART = "torch/csrc/dynamo/guards.cpp: tensors_definitely_do_not_overlap"
INTERNAL = "aten/src/ATen/MemoryOverlap.cpp: has_internal_overlap"
STATUS = "aten/src/ATen/MemoryOverlap.cpp: get_overlap_status"

_ANY = "all sizes, strides, offsets"
_UP_TO_3 = tuple(product((1, 2, 3), (1, 2, 3)))
_ITEMS = (1, 2, 4, 8)
_MIXED = tuple((one, other) for one in _ITEMS for other in _ITEMS if one != other)


# --- tensors_definitely_do_not_overlap: x is the view of the smaller offset, *in elements* --------


def is_contiguous(x: SymbolicView) -> Formula:
    """What `Tensor.is_contiguous()` says of a tensor with elements."""
    conditions, expected = [], 1
    for size, stride in zip(reversed(x.sizes), reversed(x.strides), strict=True):
        conditions.append(either(size == 1, stride == expected))
        expected = expected * size
    return every(*conditions)


def _reached(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """What is known behind the first two branches."""
    return [x.offset <= y.offset, *(size >= 1 for size in (*x.sizes, *y.sizes))]


def _not_both_contiguous(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [*_reached(x, y), no(every(is_contiguous(x), is_contiguous(y)))]


def either_empty(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """The branch: one has no elements."""
    return [either(x.numel == 0, y.numel == 0)]


def contiguous_one_after_the_other(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """The branch: both contiguous, `x` as long as the offset of `y` allows."""
    return [*_reached(x, y), is_contiguous(x), is_contiguous(y), x.offset + x.numel <= y.offset]


def last(x: SymbolicView) -> Number:
    """The offset of the last element."""
    return x.offset + sum(
        (size - 1) * stride for size, stride in zip(x.sizes, x.strides, strict=True)
    )


def ends_before(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """The branch: not both contiguous, the last element of `x` before the first of `y`."""
    return [*_not_both_contiguous(x, y), last(x) < y.offset]


def _in_rows(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """Behind all branches above: both two-dimensional, inner strides one, outer strides equal, row 0 of `x` before `y`."""
    if (x.dims, y.dims) != (2, 2):
        return [False]
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
    """The branch: in rows, all of `x` before `y`."""
    known = _in_rows(x, y)
    return (
        known
        if x.dims != 2
        else [*known, x.strides[0] * (x.sizes[0] - 1) + x.sizes[1] <= y.offset - x.offset]
    )


def rows_between(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """The branch: in rows, and row 0 of `y`, moved back by whole rows, ends before the next row of `x` begins."""
    known = _in_rows(x, y)
    if x.dims != 2 or y.dims != 2:
        return known
    stride, delta = x.strides[0], y.offset - x.offset
    some_left = stride * (x.sizes[0] - 1) + x.sizes[1] > delta
    return [*known, some_left, _modulo(delta, stride) + y.sizes[1] <= stride]


def _modulo(number: Number, divisor: Number) -> Number:
    """The remainder; of a division by zero, which lemma 'modulus' rules out, anything."""
    return number if isinstance(divisor, int) and divisor == 0 else number % divisor


# All ways in which it comes to say "definitely apart".
SAYS_APART: tuple[Branch, ...] = (
    either_empty,
    contiguous_one_after_the_other,
    ends_before,
    rows_end_before,
    rows_between,
)


def torch_says_apart(pair: Sequence[torch.Tensor]) -> bool:
    """What the installed predicate says of two tensors that share a storage."""
    return not compute_overlapping_tensors(list(pair), symbolic=False)


def sound(
    name: str,
    claim: str,
    branch: Branch,
    dims: Sequence[tuple[int, int]],
    items: Sequence[tuple[int, int]] = ((1, 1),),
    first: Branch | None = None,
) -> Lemma:
    """Where this branch says "definitely apart", no byte is in both views.

    Views of one item size are stated with elements of one byte; lemma 'one item size' says why that
    is enough. `first` narrows what is asked first, for a counterexample that a program can make use
    of.
    """
    cases = [
        LemmaCase(
            f"{ranks[0]} and {ranks[1]} dims, {sizes[0]} and {sizes[1]} bytes",
            partial(_no_byte_in_both, branch=branch, ranks=ranks, items=sizes, narrowed=narrowed),
        )
        for narrowed in ((first, None) if first else (None,))
        for ranks, sizes in product(dims, items)
    ]
    least, most = min(dims), max(dims)
    spans = (
        f"{most[0]}x{most[1]}" if least == most else f"{least[0]}x{least[1]} to {most[0]}x{most[1]}"
    )
    sizes_text = "one item size" if len(items) == 1 else "two item sizes of 1 to 8"
    ranges = f"{spans} dims, {sizes_text}, {_ANY}"
    return Lemma(name, APART, claim, ranges, tuple(cases), torch_says_apart, write_one_read_other)


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
    return Statement([*_strided(x, y), *branch(x, y), *also], share_a_byte(scope, x, y), (x, y))


def _strided(*views: SymbolicView) -> list[Formula]:
    """What torch guarantees of any strided tensor."""
    return [each >= 0 for x in views for each in (x.offset, *x.sizes, *x.strides)]


def _rows_apart(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """Neither overlaps itself, so that eager may write it."""
    return [x.strides[0] >= x.sizes[1], y.strides[0] >= y.sizes[1]]


def _rows_between_repaired(scope: Scope) -> Statement:
    """Branch `rows_between` with what it leaves out: row 0 of `y` must also begin behind the end of that row of `x`.

    z3 needs two hints: quotient and remainder by name, and the rows of two elements by how far they
    are apart.
    """
    stride, whole_rows, rest = scope("stride"), scope("whole_rows"), scope("rest")
    x = SymbolicView(scope("x.offset"), (scope("x.size0"), scope("x.size1")), (stride, 1))
    offset = x.offset + whole_rows * stride + rest
    y = SymbolicView(offset, (scope("y.size0"), scope("y.size1")), (stride, 1))
    i, j = index(scope, "i", x), index(scope, "j", y)
    premises = [
        *_strided(x, y),
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
    return Statement(premises, shared, (x, y))


def _modulus_is_positive(scope: Scope) -> Statement:
    x, y = view(scope, "x", 2), view(scope, "y", 2)
    delta = y.offset - x.offset
    left = x.strides[0] * (x.sizes[0] - 1) + x.sizes[1] > delta
    return Statement([*_strided(x, y), *_in_rows(x, y), left], [x.strides[0] <= 0], (x, y))


def _contiguous_says_overlap(scope: Scope, dims: int) -> Statement:
    x, y = view(scope, "x", dims), view(scope, "y", dims)
    premises = [
        *_strided(x, y),
        *_reached(x, y),
        is_contiguous(x),
        is_contiguous(y),
        x.offset + x.numel > y.offset,
    ]
    # The first element of y is that of x whose position is delta; dims of size one hold index 0.
    position = y.offset - x.offset
    at: list[Number] = []
    for size in reversed(x.sizes):
        digit = scope(f"i{len(at)}")
        rest = scope(f"rest{len(at)}")
        premises += [position == rest * size + digit, digit >= 0, digit < size]
        at.append(digit)
        position = rest
    i = tuple(reversed(at))
    return Statement(
        premises, [no(every(*inside(i, x), x.address(i) == y.address((0,) * dims)))], (x, y)
    )


def _row_0_says_overlap(scope: Scope) -> Statement:
    x, y = view(scope, "x", 2), view(scope, "y", 2)
    delta = y.offset - x.offset
    premises = [*_strided(x, y), *_reached(x, y), x.strides[1] == 1, delta < x.sizes[1]]
    return Statement(
        premises,
        [no(every(*inside((0, delta), x), x.address((0, delta)) == y.address((0, 0))))],
        (x, y),
    )


def _same_or_apart(scope: Scope) -> Statement:
    """Two elements as large as each other, on multiples of their size, share a byte only if they are the same."""
    item, distance = scope("itemsize"), scope("distance")
    shared = every(item * distance < item, item * distance > -item)
    return Statement(
        [item >= 1], [either(every(shared, distance != 0), every(no(shared), distance == 0))]
    )


DEFINITELY_APART: tuple[Lemma, ...] = (
    Lemma(
        "one item size",
        APART,
        "elements of one storage and item size share a byte exactly if they are the same",
        "any item size",
        (LemmaCase("all", _same_or_apart),),
    ),
    sound("empty", "a view without elements shares no byte", either_empty, _UP_TO_3),
    sound(
        "contiguous",
        "x.offset + x.numel <= y.offset: apart",
        contiguous_one_after_the_other,
        _UP_TO_3,
    ),
    sound(
        "contiguous, mixed",
        "x.offset + x.numel <= y.offset: apart",
        contiguous_one_after_the_other,
        ((1, 1),),
        _MIXED,
    ),
    sound("last before first", "x_last < y.offset: apart", ends_before, _UP_TO_3),
    sound("last before first, mixed", "x_last < y.offset: apart", ends_before, ((1, 1),), _MIXED),
    sound(
        "rows: all before",
        "x_total_elems_covered <= offset_delta: apart",
        rows_end_before,
        ((2, 2),),
    ),
    sound(
        "rows: between",
        "delta % stride + y.size(1) <= stride: apart",
        rows_between,
        ((2, 2),),
        first=_rows_apart,
    ),
    Lemma(
        "rows: between, repaired",
        APART,
        "x.size(1) <= delta % stride and delta % stride + y.size(1) <= stride: apart",
        f"2x2 dims, one item size, {_ANY}",
        (LemmaCase("2 dims", _rows_between_repaired),),
    ),
    Lemma(
        "rows: modulus",
        APART,
        "no division by zero",
        f"2x2 dims, {_ANY}",
        (LemmaCase("2 dims", _modulus_is_positive),),
    ),
    Lemma(
        "contiguous: overlap",
        APART,
        "x.offset + x.numel > y.offset: the first element of y is in x",
        f"1 and 2 dims, one item size, {_ANY}",
        tuple(
            LemmaCase(f"{dims} dims", partial(_contiguous_says_overlap, dims=dims))
            for dims in (1, 2)
        ),
    ),
    Lemma(
        "rows: overlap",
        APART,
        "offset_delta < x.size(1): the first element of y is in row 0 of x",
        f"2x2 dims, one item size, {_ANY}",
        (LemmaCase("2 dims", _row_0_says_overlap),),
    ),
)


# --- has_internal_overlap -------------------------------------------------------------------------


def says_no(x: SymbolicView) -> Formula:
    """The branch "no": without elements, or contiguous after dims are put in the right order.

    Lemmas name dims in that order, so that it need not be searched.
    """
    return either(x.numel == 0, is_contiguous(x))


def says_yes(x: SymbolicView) -> Formula:
    """The branch "yes": some dim of stride zero."""
    return every(
        no(says_no(x)), either(*(every(size > 1, stride == 0) for size, stride in _dims(x)))
    )


def _dims(x: SymbolicView) -> list[tuple[Number, Number]]:
    return list(zip(x.sizes, x.strides, strict=True))


def _no_is_right(scope: Scope, dims: int) -> Statement:
    x = view(scope, "x", dims)
    return Statement([*_strided(x), says_no(x)], overlaps_itself(scope, x), (x,))


def _yes_is_right(scope: Scope, dims: int, zero: int) -> Statement:
    """A step along the dim of stride zero, from the first element, must lead to another element at the same place."""
    x = view(scope, "x", dims)
    first, second = (0,) * dims, tuple(int(dim == zero) for dim in range(dims))
    found = every(*inside(first, x), *inside(second, x), x.address(first) == x.address(second))
    premises = [*_strided(x), no(says_no(x)), x.sizes[zero] > 1, x.strides[zero] == 0]
    return Statement(premises, [no(found)], (x,))


def _not_yes_is_safe(scope: Scope) -> Statement:
    x = view(scope, "x", 2)
    return Statement(
        [*_strided(x), no(says_yes(x)), x.strides[1] == 1], overlaps_itself(scope, x), (x,)
    )


def torch_says_no_overlap(pair: Sequence[torch.Tensor]) -> bool:
    """Whether the installed `has_internal_overlap` says no."""
    return bool(torch._debug_has_internal_overlap(pair[0]) == 0)


def torch_does_not_say_overlap(pair: Sequence[torch.Tensor]) -> bool:
    """The condition under which `torch.fx.passes.reinplace` takes a tensor for one without internal overlap."""
    return bool(torch._debug_has_internal_overlap(pair[0]) != 1)


def _apart_in_memory(scope: Scope, items: tuple[int, int]) -> Statement:
    x, y = (view(scope, name, 2, item) for name, item in zip("xy", items, strict=True))
    begin_x, begin_y = (each.offset * each.itemsize for each in (x, y))
    end_x, end_y = ((each.offset + each.numel) * each.itemsize for each in (x, y))
    nonempty = [size >= 1 for size in (*x.sizes, *y.sizes)]
    premises = [
        *_strided(x, y),
        *nonempty,
        is_contiguous(x),
        is_contiguous(y),
        no(every(begin_x < end_y, begin_y < end_x)),
    ]
    return Statement(premises, share_a_byte(scope, x, y), (x, y))


INTERNAL_OVERLAP: tuple[Lemma, ...] = (
    Lemma(
        "internal: no",
        INTERNAL,
        "non-overlapping and dense: no two elements at one place",
        "1 to 3 dims, all sizes and strides",
        tuple(LemmaCase(f"{dims} dims", partial(_no_is_right, dims=dims)) for dims in (1, 2, 3)),
        torch_says_no_overlap,
    ),
    Lemma(
        "internal: yes",
        INTERNAL,
        "a dim of stride zero: two elements at one place",
        "1 to 3 dims, all sizes and strides",
        tuple(
            LemmaCase(f"dim {zero} of {dims}", partial(_yes_is_right, dims=dims, zero=zero))
            for dims in (1, 2, 3)
            for zero in range(dims)
        ),
    ),
    Lemma(
        "internal: not yes",
        "torch/fx/passes/reinplace.py: reinplace (step 1b)",
        "has_internal_overlap does not say yes: no two elements at one place",
        "2 dims, inner stride 1, all sizes and strides",
        (LemmaCase("2 dims", _not_yes_is_safe),),
        torch_does_not_say_overlap,
        invert_windows,
    ),
    Lemma(
        "status: no",
        STATUS,
        "both dense, their bytes one after the other: apart",
        f"2x2 dims, item sizes 1, 4, 8, {_ANY}",
        tuple(
            LemmaCase(f"{items[0]} and {items[1]} bytes", partial(_apart_in_memory, items=items))
            for items in product((1, 4, 8), (1, 4, 8))
        ),
    ),
)

TORCH_LEMMAS = DEFINITELY_APART + INTERNAL_OVERLAP
