"""Which ops round, and how: one table per kind of op, by the name that all forms of an op share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._ops import OpOverload


def moves(op: OpOverload, tensors: Sequence[torch.Tensor]) -> bool:
    """True if all bits of what the op stores come from one operand, or are a constant."""
    numbers = {each.dtype for each in tensors if each.is_floating_point() or each.is_complex()}
    # A lazy conjugate or negative bit is resolved on the way, which may change the sign of a NaN.
    lazy = any(each.is_conj() or each.is_neg() for each in tensors)
    return rounding_name(op) in MOVES and len(numbers) <= 1 and not lazy


def rounds_alike(op: OpOverload, tensors: Sequence[torch.Tensor]) -> bool:
    """True if every kernel for the op must round to the same bits.

    That holds for moves, comparisons and single IEEE operations. Kernels differ by a unit in the
    last place where they may sum in another order, or fuse a multiplication with an addition (FMA).
    A complex product and an addition with a factor (`alpha`) allow that.
    """
    rounding = [each for each in tensors if each.is_floating_point() or each.is_complex()]
    name = rounding_name(op)
    if name in ONE_ROUNDING:
        return not any(tensor.is_complex() for tensor in rounding)
    # An op without an entry may round in any way, so its values are compared with a tolerance.
    return name in NO_ROUNDING or not rounding


def rounding_name(op: OpOverload) -> str:
    """The name of an op in the tables below; all its overloads and forms share it."""
    name: str = op.overloadpacket.__name__
    return name.removeprefix("_foreach_").rstrip("_")


# These round once, which IEEE 754 defines; on complex values they round more than once.
ONE_ROUNDING = {"mul", "square"}

# These move values, compare them, or round each element at most once.
# fmt: off
NO_ROUNDING = {
    "add", "sub", "rsub", "neg", "abs", "sign", "relu", "clamp", "clamp_min", "clamp_max", "fill",
    "zero", "copy", "clone", "where", "masked_fill", "select_scatter", "slice_scatter",
    "diagonal_scatter", "as_strided_scatter", "index", "index_put", "index_copy", "index_fill",
    "index_select", "gather", "scatter", "cat", "stack", "flip", "zeros_like", "full_like",
    "zeros", "ones", "full", "eq", "ne", "gt", "ge", "lt", "le", "logical_not", "bitwise_not",
    "tril", "triu", "amax", "amin", "maximum", "minimum", "_to_copy", "_unsafe_view", "alias",
    "detach", "lift_fresh", "roll", "repeat", "view_copy", "empty", "empty_like", "empty_strided",
    "empty_permuted", "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full",
    "ones_like", "arange", "scalar_tensor", "item", "_local_scalar_dense", "isnan", "isinf",
    "logical_and", "logical_or", "logical_xor", "nonzero", "take",
    "type_as", "atleast_1d", "atleast_2d", "atleast_3d", "conj_physical",
}

# These keep the bits of what they move, also those of a NaN.
MOVES = NO_ROUNDING - {
    "add", "sub", "rsub", "neg", "abs", "sign", "relu", "clamp", "clamp_min", "clamp_max", "eq",
    "ne", "gt", "ge", "lt", "le", "logical_not", "bitwise_not", "amax", "amin", "maximum",
    "minimum", "isnan", "isinf", "logical_and", "logical_or", "logical_xor",
    "conj_physical",
}
# fmt: on

# A kernel may give either zero where these compare 0.0 with -0.0.
ANY_ZERO = {"relu", "clamp", "clamp_min", "clamp_max", "amax", "amin", "maximum", "minimum"}

# Where a number is huge, these differ from kernel to kernel by more than a tolerance.
ADDS_IN_ANY_ORDER = {
    *("sum", "cumsum", "mean", "index_add", "scatter_add", "addcmul", "addcdiv", "lerp"),
    *("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "addbmm"),
}
MULTIPLIES = {"mul", "square", "pow", "div", "reciprocal", *ADDS_IN_ANY_ORDER}
# A kernel may leave out products with 0, which are NaN where the other factor is not finite.
MAY_SKIP_ZEROS = {"mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "addbmm"}
READS_ZERO_SIGN = {"div", "reciprocal", "rsqrt", "pow", "atan2", "copysign", "signbit"}

# Correct kernels may differ in these, for the reason given. An op that is in no table is treated
# the same way: an entry only says that the default is right for the op. Every op that programs are
# drawn from needs an entry in one of the tables; `tests/generators/test_precision.py` asks for it.
KERNELS_DIFFER = {
    "cos": "a library function without an exact result",
    "sigmoid": "a library function without an exact result",
    "div": "may multiply by the reciprocal; a complex quotient rounds several times",
    "lerp": "multiplies and adds",
    "addcmul": "multiplies and adds",
    "sum": "adds in any order",
    "cumsum": "adds in any order",
    "index_add": "adds equal indices in any order",
    "matmul": "calls one of the next four",
    "mm": "adds in any order",
    "bmm": "adds in any order",
    "mv": "adds in any order",
    "dot": "adds in any order",
    "dropout": "multiplies by a rounded factor",
    "feature_dropout": "multiplies by a rounded factor",
    "alpha_dropout": "multiplies and adds",
    "feature_alpha_dropout": "multiplies and adds",
}
