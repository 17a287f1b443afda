"""Ops that give new tensors."""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.operator import Operator, at_least, line, lines, not_bool, of_rank, real

FUNCTIONAL: tuple[Operator, ...] = (
    line("functional", "add.Tensor", not_bool, other=tensors.partner_or_number),
    line("functional", "add.Scalar", not_bool),
    line("functional", "sub.Tensor", not_bool, other=tensors.partner_or_number),
    line("functional", "mul.Tensor", other=tensors.partner_or_number),
    line("functional", "mul.Scalar"),
    line("functional", "neg.default", not_bool),
    line("functional", "abs.default", real),
    line("functional", "relu.default", real),
    line("functional", "clone.default"),
    line("functional", "zeros_like.default"),
    line("functional", "full_like.default", fill_value=numbers.number),
    line("functional", "gt.Scalar", real),
    line("functional", "eq.Tensor", other=tensors.partner),
    line("functional", "logical_not.default"),
    line("functional", "clamp.default", real, min=numbers.number),
    line("functional", "masked_fill.Scalar", value=numbers.number),
    line("functional", "where.self", other=tensors.partner),
    line("functional", "fill.Scalar"),
    line("functional", "copy.default"),
    line("functional", "cat.default", dim=numbers.dimension),
    line("functional", "stack.default"),
    line("functional", "addcmul.default", not_bool, value=numbers.number),
    line("functional", "flip.default", dims=numbers.dimension_in_list),
    line(
        "functional",
        "roll.default",
        shifts=numbers.shift_in_list,
        dims=numbers.dimension_in_list,
    ),
    line("functional", "repeat.default", repeats=numbers.repetitions),
    *lines("functional", "ones_like.default remainder.Scalar pow.Tensor_Scalar"),
    *lines(
        "functional",
        "remainder.Tensor div.Tensor maximum.default logical_and.default bitwise_or.Tensor"
        " le.Tensor",
        other=tensors.partner,
    ),
    line("functional", "div.Tensor_mode", rounding_mode=numbers.rounding_mode),
    *lines("functional", "sigmoid.default exp.default sqrt.default floor.default sign.default"),
    *of_rank(
        at_least(2),
        *lines("functional", "tril.default triu.default", diagonal=numbers.offset_of_diagonal),
    ),
)
