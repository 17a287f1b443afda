"""Scatters: the functional forms of a write through a view."""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.operator import Operator, any_dtype, line

SCATTERS: tuple[Operator, ...] = (
    line(
        "scatter",
        "select_scatter.default",
        src=tensors.source_for("aten.select.int", "dim", "index"),
        index=numbers.index_in_dimension,
    ),
    line(
        "scatter",
        "slice_scatter.default",
        any_dtype,
        src=tensors.source_for("aten.slice.Tensor", "dim", "start", "end", "step"),
        **numbers.SLICE,
    ),
    line(
        "scatter",
        "diagonal_scatter.default",
        any_dtype,
        src=tensors.source_for("aten.diagonal.default", "offset", "dim1", "dim2"),
        **numbers.DIAGONAL,
    ),
    line(
        "scatter",
        "as_strided_scatter.default",
        any_dtype,
        src=tensors.source_for("aten.as_strided.default", "size", "stride", "storage_offset"),
        **numbers.AS_STRIDED,
    ),
)
