"""Ops that write into a buffer."""

from __future__ import annotations

from generators import number_arguments as numbers
from generators import tensor_arguments as tensors
from generators.operator import Operator, line, not_bool, real

OUT: tuple[Operator, ...] = (
    line("out=", "add.out", not_bool),
    line("out=", "mul.out"),
    line("out=", "neg.out", not_bool),
    line("out=", "clamp.out", real, min=numbers.number),
    line("out=", "cumsum.out", real),
    line("out=", "gt.Scalar_out", real, out=tensors.bool_buffer),
    line("out=", "where.self_out"),
)
