"""Scatters: the functional forms of a write through a view."""

from __future__ import annotations

from generators import number_arguments as numbers
from generators import tensor_arguments as tensors
from generators.operator import Operator, line

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
        src=tensors.source_for("aten.slice.Tensor", "dim", "start", "end", "step"),
        dim=numbers.dimension,
        start=numbers.start_in_dimension,
        end=numbers.end_in_dimension,
        step=numbers.step,
    ),
    line(
        "scatter",
        "diagonal_scatter.default",
        src=tensors.source_for("aten.diagonal.default", "offset", "dim1", "dim2"),
        offset=numbers.offset_of_diagonal,
        dim1=numbers.dimension,
        dim2=numbers.other_dimension,
    ),
    line(
        "scatter",
        "as_strided_scatter.default",
        src=tensors.source_for("aten.as_strided.default", "size", "stride", "storage_offset"),
        size=numbers.strided_sizes,
        stride=numbers.strided_strides,
        storage_offset=numbers.strided_offset,
    ),
)
