"""In-place ops that compare, and logical and bitwise ones."""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.operator import Operator, lines, seldom

COMPARISONS: tuple[Operator, ...] = (
    *lines(
        "comparison",
        "gt_.Scalar gt_.Tensor ge_.Scalar ge_.Tensor lt_.Scalar lt_.Tensor le_.Scalar le_.Tensor"
        " eq_.Scalar eq_.Tensor ne_.Scalar ne_.Tensor"
        " logical_and_.default logical_or_.default logical_xor_.default"
        " bitwise_and_.Scalar bitwise_and_.Tensor bitwise_or_.Scalar bitwise_or_.Tensor"
        " bitwise_xor_.Scalar bitwise_xor_.Tensor",
    ),
    *lines(
        "comparison",
        "bitwise_left_shift_.Tensor bitwise_right_shift_.Tensor",
        other=tensors.operand_of_same_dtype,
    ),
    *lines(
        "comparison",
        "bitwise_left_shift_.Tensor_Scalar bitwise_right_shift_.Tensor_Scalar",
        other=numbers.one_of(0, 1, 2, 7),
    ),
    # Other names of ops above.
    *seldom(
        lines(
            "comparison",
            "greater_.Scalar greater_.Tensor greater_equal_.Scalar greater_equal_.Tensor"
            " less_.Scalar less_.Tensor less_equal_.Scalar less_equal_.Tensor"
            " not_equal_.Scalar not_equal_.Tensor"
            " __iand__.Scalar __iand__.Tensor __ior__.Scalar __ior__.Tensor"
            " __ixor__.Scalar __ixor__.Tensor",
        )
    ),
    *seldom(
        lines(
            "comparison",
            "__ilshift__.Tensor __irshift__.Tensor",
            other=tensors.operand_of_same_dtype,
        )
    ),
    *seldom(
        lines(
            "comparison",
            "__ilshift__.Scalar __irshift__.Scalar",
            other=numbers.one_of(0, 1, 2, 7),
        )
    ),
)
