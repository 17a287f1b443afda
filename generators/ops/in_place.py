"""The plainest in-place ops."""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.operator import (
    Operator,
    floating,
    inexact,
    integer_or_bool,
    line,
    not_bool,
    real,
)

IN_PLACE: tuple[Operator, ...] = (
    line("in-place", "add_.Tensor", not_bool),
    line("in-place", "add_.Scalar", not_bool),
    line("in-place", "sub_.Tensor", not_bool, alpha=numbers.number),
    line("in-place", "mul_.Tensor"),
    line("in-place", "mul_.Scalar"),
    line("in-place", "div_.Tensor", inexact),
    line("in-place", "neg_.default", not_bool),
    line("in-place", "abs_.default", real),
    line("in-place", "relu_.default", real),
    line("in-place", "sign_.default", real),
    line("in-place", "square_.default", not_bool),
    line("in-place", "sigmoid_.default", floating),
    line("in-place", "cos_.default", floating),
    line("in-place", "bitwise_not_.default", integer_or_bool),
    line("in-place", "logical_not_.default"),
    line("in-place", "fill_.Scalar"),
    line("in-place", "fill_.Tensor", value=tensors.scalar_tensor),
    line("in-place", "zero_.default"),
    line("in-place", "copy_.default"),
    line("in-place", "clamp_.default", real, min=numbers.number),
    line("in-place", "clamp_max_.default", real, max=numbers.number),
    line("in-place", "lerp_.Scalar", inexact),
    line("in-place", "addcmul_.default", not_bool, value=numbers.number),
    line("in-place", "cumsum_.default", not_bool),
    line("in-place", "masked_fill_.Scalar", value=numbers.number),
    line("in-place", "masked_fill_.Tensor", value=tensors.scalar_tensor),
)
