"""Lemmas about the overlap predicates that torch ships, restated from torch 2.13.

`tests/lemmas/torch_disjoint_lemmas.py` has the predicate for two disjoint tensors. Here are
those of aten/src/ATen/MemoryOverlap.cpp:

- `has_internal_overlap`, behind `_debug_has_internal_overlap`. Eager refuses to write where it says
  yes. The FX pass reinplaces where it does not. Tests compare the installed one to the restatement
  (`says_no`, `says_yes`).
- `get_overlap_status` decides only whether eager raises; its one claim of disjointness is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

import torch

from tests.lemmas.lemma import Lemma, LemmaCase, Statement
from tests.lemmas.lemma_formulas import (
    Formula,
    Number,
    Scope,
    SymbolicView,
    either,
    every,
    inside,
    no,
    overlaps_itself,
    share_a_byte,
    view,
)
from tests.lemmas.lemma_programs import invert_windows
from tests.lemmas.torch_disjoint_lemmas import DISJOINT_LEMMAS, is_contiguous, strided

INTERNAL = "aten/src/ATen/MemoryOverlap.cpp: has_internal_overlap"
STATUS = "aten/src/ATen/MemoryOverlap.cpp: get_overlap_status"


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


def torch_says_no_overlap(pair: Sequence[torch.Tensor]) -> bool:
    """Whether the installed `has_internal_overlap` says no."""
    return bool(torch._debug_has_internal_overlap(pair[0]) == 0)  # 0: no, 1: yes, 2: too hard


def torch_does_not_say_overlap(pair: Sequence[torch.Tensor]) -> bool:
    """Whether `torch.fx.passes.reinplace` takes the tensor for one without internal overlap."""
    return bool(torch._debug_has_internal_overlap(pair[0]) != 1)


# --- statements -----------------------------------------------------------------------------------


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


MEMORY_OVERLAP_LEMMAS: tuple[Lemma, ...] = (
    Lemma(
        "internal: no",
        INTERNAL,
        "non-overlapping and dense: no two elements at one address",
        "1 to 3 dims, all sizes and strides",
        tuple(LemmaCase(f"{dims} dims", partial(_no_is_right, dims=dims)) for dims in (1, 2, 3)),
        torch_says_no_overlap,
    ),
    Lemma(
        "internal: yes",
        INTERNAL,
        "a dim of stride zero: two elements at one address",
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
        "has_internal_overlap does not say yes: no two elements at one address",
        "2 dims, inner stride 1, all sizes and strides",
        (LemmaCase("2 dims", _not_yes_is_safe),),
        torch_does_not_say_overlap,
        invert_windows,
    ),
    Lemma(
        "status: no",
        STATUS,
        "both dense, the bytes of one before those of the other: disjoint",
        "2x2 dims, item sizes 1, 4, 8, all sizes, strides, offsets",
        tuple(
            LemmaCase(f"{items[0]} and {items[1]} bytes", partial(_disjoint_in_memory, items=items))
            for items in product((1, 4, 8), (1, 4, 8))
        ),
    ),
)

TORCH_LEMMAS = DISJOINT_LEMMAS + MEMORY_OVERLAP_LEMMAS
