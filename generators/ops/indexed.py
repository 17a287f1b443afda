"""Reads and stores by index."""

from __future__ import annotations

from generators import tensor_arguments as tensors
from generators.operator import Operator, line, not_bool

INDEXED: tuple[Operator, ...] = (
    line("indexed", "index.Tensor"),
    line("indexed", "index_put_.default", values=tensors.values_to_put),
    line("indexed", "index_put.default", values=tensors.values_to_put),
    line("indexed", "index_add_.default", not_bool, source=tensors.rows_to_add),
    line("indexed", "index_copy_.default", source=tensors.rows_to_add),
    line("indexed", "index_fill_.int_Scalar"),
    line("indexed", "index_select.default"),
    line("indexed", "scatter_.src", index=tensors.positions_like, src=tensors.at_least_index),
    line("indexed", "scatter_.value", index=tensors.positions_like),
    line("indexed", "gather.default", index=tensors.positions_like),
)
