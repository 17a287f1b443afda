"""Lemmas about the overlap predicates that torch ships, restated from torch 2.13.

`tensors_definitely_do_not_overlap` (torch/csrc/dynamo/guards.cpp) is restated as `SAYS_DISJOINT`,
one branch of its case split after the other. It is compiled code behind
`compute_overlapping_tensors`, which tests compare to the restatement. Its first argument `x` is the
view of the smaller offset, *in elements*. Three passes ask it:

- AOTAutograd, of inputs that share a storage (`merge_view_inputs`): inputs that it finds disjoint
  get no common base;
- the dynamo guard StorageOverlap, which asks again on later calls;
- Inductor's reinplacing, of views of a tensor that it wants to overwrite.

Of aten/src/ATen/MemoryOverlap.cpp there are:

- `has_internal_overlap`, behind `_debug_has_internal_overlap`. Eager refuses to write where it says
  yes. The FX pass reinplaces where it does not. Tests compare the installed one to the restatement
  (`says_no`, `says_yes`).
- `get_overlap_status`, which decides only whether eager raises; its one claim of disjointness is
  here.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TypeAlias

from tests.lemmas.lemma import Lemma, Statement
from tests.lemmas.lemma_formulas import (
    Formula,
    Number,
    Scope,
    SymbolicView,
    either,
    every,
    index,
    inside,
    named,
    no,
    overlaps_itself,
    share_a_byte,
    view,
)

# The conditions under which the predicate takes one branch.
Branch: TypeAlias = Callable[[SymbolicView, SymbolicView], list[Formula]]

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


# --- statements: where a branch says "disjoint", no byte is in both -------------------------------


def sound(
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
    return {
        f"{ranks} dims, {sizes} bytes{', narrowed' if narrowed else ''}": partial(
            _no_byte_in_both, branch=branch, ranks=ranks, items=sizes, narrowed=narrowed
        )
        for narrowed in ((first, None) if first else (None,))
        for ranks, sizes in product(dims, items)
    }


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
    stride, whole_rows, rest = named(scope, "stride whole_rows rest")
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


# --- overlap in memory ----------------------------------------------------------------------------


def says_no(x: SymbolicView) -> Formula:
    """The branch "no": without elements, or contiguous after a permutation of dimensions.

    Lemmas have the dimensions in that order already, so they need not search it.
    """
    return either(x.numel == 0, is_contiguous(x))


def says_yes(x: SymbolicView) -> Formula:
    """The branch "yes": some dimension of two or more elements has stride zero."""
    return every(
        no(says_no(x)), either(*(every(size > 1, stride == 0) for size, stride in _dims(x)))
    )


def _dims(x: SymbolicView) -> list[tuple[Number, Number]]:
    return list(zip(x.sizes, x.strides, strict=True))


def _no_is_right(scope: Scope, dims: int) -> Statement:
    x = view(scope, "x", dims)
    return Statement([*strided(x), says_no(x)], overlaps_itself(scope, x), (x,))


def _yes_is_right(scope: Scope, dims: int, zero: int) -> Statement:
    """A step along the dimension of stride zero leads to another element at the same address."""
    x = view(scope, "x", dims)
    # A given pair of elements is enough, so z3 need not search indices.
    first, second = (0,) * dims, tuple(int(dim == zero) for dim in range(dims))
    overlap = every(*inside(first, x), *inside(second, x), x.address(first) == x.address(second))
    assumptions = [*strided(x), no(says_no(x)), x.sizes[zero] > 1, x.strides[zero] == 0]
    return Statement(assumptions, [no(overlap)], (x,))


def _not_yes_is_safe(scope: Scope) -> Statement:
    x = view(scope, "x", 2)
    # An inner stride of one, so that `unfold` can make the counterexample.
    return Statement(
        [*strided(x), no(says_yes(x)), x.strides[1] == 1], overlaps_itself(scope, x), (x,)
    )


def _disjoint_in_memory(scope: Scope, items: tuple[int, int]) -> Statement:
    x, y = (view(scope, name, 2, item) for name, item in zip("xy", items, strict=True))
    # In bytes, since the item sizes can differ: this predicate is right where the other one is not.
    begin_x, begin_y = (tensor.offset * tensor.itemsize for tensor in (x, y))
    end_x, end_y = ((tensor.offset + tensor.numel) * tensor.itemsize for tensor in (x, y))
    nonempty = [size >= 1 for size in (*x.sizes, *y.sizes)]
    assumptions = [
        *strided(x, y),
        *nonempty,
        is_contiguous(x),
        is_contiguous(y),
        no(every(begin_x < end_y, begin_y < end_x)),
    ]
    return Statement(assumptions, share_a_byte(scope, x, y), (x, y))


TORCH_LEMMAS: dict[str, Lemma] = {
    # Elements of one storage and item size share a byte exactly if they are the same.
    "one item size": {"all": _same_or_disjoint},
    # A view without elements shares no byte.
    "empty": sound(either_empty, _UP_TO_3),
    # x.offset + x.numel <= y.offset: disjoint.
    "contiguous": sound(contiguous_one_after_the_other, _UP_TO_3),
    "contiguous, mixed": sound(contiguous_one_after_the_other, ((1, 1),), _MIXED),
    # x_last < y.offset: disjoint.
    "last before first": sound(ends_before, _UP_TO_3),
    "last before first, mixed": sound(ends_before, ((1, 1),), _MIXED),
    # x_total_elems_covered <= offset_delta: disjoint.
    "rows: all before": sound(rows_end_before, ((2, 2),)),
    # delta % stride + y.size(1) <= stride: disjoint.
    "rows: between": sound(rows_between, ((2, 2),), first=_rows_disjoint),
    # x.size(1) <= delta % stride and delta % stride + y.size(1) <= stride: disjoint.
    "rows: between, repaired": {"2 dims": _rows_between_repaired},
    # No division by zero.
    "rows: modulus": {"2 dims": _modulus_is_positive},
    # x.offset + x.numel > y.offset: the first element of y is in x.
    "contiguous: overlap": {
        f"{dims} dims": partial(_contiguous_says_overlap, dims=dims) for dims in (1, 2)
    },
    # offset_delta < x.size(1): the first element of y is in row 0 of x.
    "rows: overlap": {"2 dims": _row_0_says_overlap},
    # `has_internal_overlap` says no: non-overlapping and dense, so no two elements at one address.
    "internal: no": {f"{dims} dims": partial(_no_is_right, dims=dims) for dims in (1, 2, 3)},
    # It says yes: a dim of stride zero, so two elements at one address.
    "internal: yes": {
        f"dim {zero} of {dims}": partial(_yes_is_right, dims=dims, zero=zero)
        for dims in (1, 2, 3)
        for zero in range(dims)
    },
    # `torch/fx/passes/reinplace.py` (step 1b): it does not say yes, so no two elements at one
    # address.
    "internal: not yes": {"2 dims": _not_yes_is_safe},
    # `get_overlap_status`: both dense, the bytes of one before those of the other: disjoint.
    "status: no": {
        f"{items} bytes": partial(_disjoint_in_memory, items=items)
        for items in product((1, 4, 8), (1, 4, 8))
    },
}
