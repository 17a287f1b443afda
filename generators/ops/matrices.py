"""In-place ops on matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from generators import number_arguments as numbers
from generators import tensor_arguments as tensors
from generators.accepted_dtypes import accepts
from generators.draft import Draft, Drawer
from generators.operator import Operator, at_least, exactly, line, of_rank


def _multiplies(dtype: torch.dtype) -> bool:
    """True if eager multiplies matrices of that dtype."""
    return accepts("aten.mm.default", ("mat2",), dtype)


def _rows_by_any(draft: Draft) -> Sequence[int]:
    return (draft.self.shape[0], draft.pick.integer(1, 3))


def _any_by_columns(draft: Draft) -> Sequence[int]:
    return (draft.tensor("mat1").shape[1], draft.self.shape[1])


def _matrix_for_vector(draft: Draft) -> Sequence[int]:
    return (draft.self.shape[0], draft.pick.integer(1, 3))


def _vector_for_matrix(draft: Draft) -> Sequence[int]:
    return (draft.tensor("mat").shape[1],)


def _column(draft: Draft) -> Sequence[int]:
    return (draft.self.shape[0],)


def _row(draft: Draft) -> Sequence[int]:
    return (draft.self.shape[1],)


def _left_batch(rank: int) -> Drawer:
    """The first factor of a product of batches. A result of rank 2 is a sum over the batch."""

    def shape(draft: Draft) -> Sequence[int]:
        own = draft.self.shape
        batch = own[0] if rank == 3 else draft.pick.integer(1, 2)
        return (batch, own[-2], draft.pick.integer(1, 3))

    return tensors.of_shape(shape)


def _right_batch(draft: Draft) -> Sequence[int]:
    batch, _, inner = draft.tensor("batch1").shape
    return (batch, inner, draft.self.shape[-1])


_FACTORS: dict[str, Drawer] = {
    "beta": numbers.one_of(1, 0, 2),
    "alpha": numbers.one_of(1, 2, -1),
}

MATRICES: tuple[Operator, ...] = (
    *of_rank(
        exactly(2),
        line(
            "matrix",
            "addmm_.default",
            _multiplies,
            mat1=tensors.of_shape(_rows_by_any),
            mat2=tensors.of_shape(_any_by_columns),
            **_FACTORS,
        ),
        line(
            "matrix",
            "addr_.default",
            _multiplies,
            vec1=tensors.of_shape(_column),
            vec2=tensors.of_shape(_row),
            **_FACTORS,
        ),
        line(
            "matrix",
            "addbmm_.default",
            _multiplies,
            batch1=_left_batch(2),
            batch2=tensors.of_shape(_right_batch),
            **_FACTORS,
        ),
    ),
    *of_rank(
        exactly(1),
        line(
            "matrix",
            "addmv_.default",
            _multiplies,
            mat=tensors.of_shape(_matrix_for_vector),
            vec=tensors.of_shape(_vector_for_matrix),
            **_FACTORS,
        ),
    ),
    *of_rank(
        exactly(3),
        line(
            "matrix",
            "baddbmm_.default",
            _multiplies,
            batch1=_left_batch(3),
            batch2=tensors.of_shape(_right_batch),
            **_FACTORS,
        ),
    ),
    # Beyond rank 2, eager wants all sizes equal.
    *of_rank(
        exactly(2),
        line("matrix", "fill_diagonal_.default", fill_value=numbers.number, wrap=numbers.flag),
    ),
    *of_rank(
        at_least(2),
        line("matrix", "triu_.default", diagonal=numbers.offset_of_diagonal),
        line("matrix", "tril_.default"),
        line(
            "matrix",
            "renorm_.default",
            p=numbers.one_of(1, 2),
            maxnorm=numbers.one_of(1, 2, 5),
        ),
    ),
)
