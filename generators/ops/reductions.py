"""Reductions, scans and products."""

from __future__ import annotations

from generators import number_arguments as numbers
from generators import tensor_arguments as tensors
from generators.operator import Operator, line, not_bool, real

REDUCTIONS: tuple[Operator, ...] = (
    line("reduction", "sum.default", not_bool),
    line("reduction", "sum.dim_IntList", not_bool, dim=numbers.dimension_in_list),
    line("reduction", "amax.default", real),
    line("reduction", "cumsum.default", not_bool),
    line("reduction", "matmul.default", not_bool, other=tensors.matrix_for),
)
