"""In-place ops on matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from generators import number_arguments as numbers
from generators import tensor_arguments as tensors
from generators.accepted_dtypes import accepts
from generators.draft import Draft, Drawer
from generators.operator import Operator, line
from generators.scene import NoChoice


def _multiplies(dtype: torch.dtype) -> bool:
    """True if eager multiplies matrices of that dtype."""
    return accepts("aten.mm.default", ("mat2",), dtype)


def _shape(draft: Draft, rank: int) -> Sequence[int]:
    """The shape of the first tensor, which must have that rank."""
    if draft.self.dim() != rank:
        raise NoChoice
    return draft.self.shape


def _rows_by_any(draft: Draft) -> Sequence[int]:
    return (_shape(draft, 2)[0], draft.pick.integer(1, 3))


def _any_by_columns(draft: Draft) -> Sequence[int]:
    return (draft.tensor("mat1").shape[1], draft.self.shape[1])


def _matrix_for_vector(draft: Draft) -> Sequence[int]:
    return (_shape(draft, 1)[0], draft.pick.integer(1, 3))


def _vector_for_matrix(draft: Draft) -> Sequence[int]:
    return (draft.tensor("mat").shape[1],)


def _column(draft: Draft) -> Sequence[int]:
    return (_shape(draft, 2)[0],)


def _row(draft: Draft) -> Sequence[int]:
    return (draft.self.shape[1],)


def _left_batch(rank: int) -> Drawer:
    """The first factor of a product of batches. A result of rank 2 is a sum over the batch."""

    def shape(draft: Draft) -> Sequence[int]:
        own = _shape(draft, rank)
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
        "addmv_.default",
        _multiplies,
        mat=tensors.of_shape(_matrix_for_vector),
        vec=tensors.of_shape(_vector_for_matrix),
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
        "baddbmm_.default",
        _multiplies,
        batch1=_left_batch(3),
        batch2=tensors.of_shape(_right_batch),
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
    line("matrix", "fill_diagonal_.default", fill_value=numbers.number, wrap=numbers.flag),
    line("matrix", "triu_.default", diagonal=numbers.offset_of_diagonal),
    line(
        "matrix",
        "renorm_.default",
        p=numbers.one_of(1, 2),
        maxnorm=numbers.one_of(1, 2, 5),
    ),
)
