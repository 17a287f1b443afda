"""Which ops round, and how: one table per kind of op, by the name that all forms of an op share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.programs.custom_operators import NAMESPACE


def moves(op: OpOverload, tensors: Sequence[torch.Tensor]) -> bool:
    """True if all bits of what the op stores come from one operand, or are a constant."""
    numbers = {each.dtype for each in tensors if each.is_floating_point() or each.is_complex()}
    # A lazy conjugate or negative bit is resolved on the way, which may change the sign of a NaN.
    lazy = any(each.is_conj() or each.is_neg() for each in tensors)
    name = rounding_name(op)
    if name in CHANGES_NANS_IN_SHORT_DTYPES and numbers & {torch.bfloat16, torch.float16}:
        return False
    return name in MOVES and len(numbers) <= 1 and not lazy


def rounds_alike(op: OpOverload, tensors: Sequence[torch.Tensor]) -> bool:
    """True if every kernel for the op must round to the same bits.

    That holds for moves, comparisons and single IEEE operations. Kernels differ by a unit in the
    last place where they may sum in another order, or fuse a multiplication with an addition (FMA).
    A complex product and an addition with a factor (`alpha`) allow that.
    """
    if op.namespace == NAMESPACE:  # they copy and add, whatever their names are
        return True
    rounding = [each for each in tensors if each.is_floating_point() or each.is_complex()]
    name = rounding_name(op)
    if name in ONE_ROUNDING:
        return not any(tensor.is_complex() for tensor in rounding)
    # An op without an entry may round in any way, so its values are compared with a tolerance.
    return name in NO_ROUNDING or not rounding


def rounds_again(arguments: Mapping[str, Any]) -> bool:
    """True if the arguments of a call make it add or multiply, beside what its name says."""
    # A factor of 1 or -1 adds no rounding.
    factors = (arguments.get("alpha"), arguments.get("beta"))
    return (
        any(factor not in (None, 0, 1, -1) for factor in factors)
        or bool(arguments.get("accumulate"))
        or arguments.get("reduce") in ("sum", "prod", "mean", "add", "multiply")
        or arguments.get("decimals") not in (None, 0)
    )


def rounding_name(op: OpOverload) -> str:
    """The name of an op in the tables below; all its overloads and forms share it."""
    name: str = op.overloadpacket.__name__
    return name.removeprefix("_foreach_").rstrip("_")


# These round at most once, which IEEE 754 defines; on complex values they round more than once.
ONE_ROUNDING = {"mul", "square", "abs", "sgn", "leaky_relu"}

# fmt: off
# These keep the bits of what they move, also those of a NaN.
MOVES = {
    "fill", "zero", "copy", "clone", "where", "masked_fill", "select_scatter", "slice_scatter",
    "diagonal_scatter", "as_strided_scatter", "index", "index_put", "_index_put_impl", "index_copy",
    "index_fill", "index_select", "gather", "scatter", "put", "take", "masked_scatter", "cat",
    "stack", "flip", "zeros_like", "full_like", "zeros", "ones", "full", "tril", "triu", "_to_copy",
    "_unsafe_view", "alias", "detach", "lift_fresh", "roll", "repeat", "view_copy", "empty",
    "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "new_zeros",
    "new_ones", "new_full", "ones_like", "arange", "scalar_tensor", "item", "_local_scalar_dense",
    "nonzero", "type_as", "atleast_1d", "atleast_2d", "atleast_3d",
    # These move nothing: their in-place forms change metadata.
    "t", "transpose", "squeeze", "unsqueeze", "as_strided", "set", "resize", "resize_as",
}

# These move values, compare them, or round each element at most once.
NO_ROUNDING = MOVES | {
    "add", "sub", "rsub", "neg", "sign", "relu", "clamp", "clamp_min", "clamp_max", "amax",
    "amin", "maximum", "minimum", "eq", "ne", "gt", "ge", "lt", "le", "isnan", "isinf",
    "logical_not", "logical_and", "logical_or", "logical_xor", "bitwise_not", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "__ilshift",
    "__irshift", "ceil", "floor", "round", "trunc", "frac", "conj_physical", "_conj_physical",
    "nan_to_num", "gcd", "lcm", "heaviside", "copysign", "nextafter", "threshold", "hardtanh",
    "_add_relu", "scatter_reduce", "index_reduce", "any", "all", "argmax", "argmin", "min", "max",
    "aminmax", "cummax", "cummin", "sort", "signbit", "isposinf",
    "uniform", "bernoulli", "random", "rand_like", "randint_like",
}
# fmt: on

# A kernel may give either zero where these compare 0.0 with -0.0.
ANY_ZERO = {
    *("relu", "clamp", "clamp_min", "clamp_max", "amax", "amin", "maximum", "minimum"),
    *("hardtanh", "threshold", "_add_relu", "scatter_reduce", "index_reduce"),
    *("min", "max", "aminmax", "cummax", "cummin"),
}

_TRAINING = {
    *("_fused_sgd", "_fused_adam", "_fused_adamw", "_fused_adagrad", "_amp_update_scale"),
    *("_amp_foreach_non_finite_check_and_unscale", "_native_batch_norm_legit"),
    "_batch_norm_with_update",
}
_PRODUCTS = {"mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "addbmm", "addr"}
# Where a number is huge, these differ from kernel to kernel by more than a tolerance.
ADDS_IN_ANY_ORDER = {
    *("sum", "cumsum", "mean", "index_add", "scatter_add", "addcmul", "addcdiv", "lerp", "renorm"),
    *("embedding_renorm", "fmod", "remainder", "floor_divide", "prod", "cumprod", "hypot"),
    *_PRODUCTS,
    *_TRAINING,
}
# These round to a short dtype on the way, and then subtract, in some kernels only.
CANCELS_IN_SHORT_DTYPES = {"_native_batch_norm_legit", "_batch_norm_with_update"}
# In the kernel for tensors without gaps, elements of a short dtype that are not moved change, too.
CHANGES_NANS_IN_SHORT_DTYPES = {"scatter"}
MULTIPLIES = {"mul", "square", "pow", "div", "reciprocal", "ldexp", *ADDS_IN_ANY_ORDER}
# The vectorised kernels for float32 and float64 compute `exp(x)` first, and halve it then. So they
# overflow for the last numbers whose result is finite, between log(max) and log(2 * max).
OVERFLOWS_EARLY = {"sinh", "cosh"}
# Of two kernels, one gives 0 where the other gives NaN.
MAY_DROP_NAN = {"_add_relu"}
# A kernel may leave out products with 0, which are NaN where the other factor is not finite.
MAY_SKIP_ZEROS = _PRODUCTS
READS_ZERO_SIGN = {"div", "reciprocal", "rsqrt", "pow", "atan2", "copysign", "signbit"}

# Correct kernels may differ in these, for the reason given. An op that is in no table is treated
# the same way: an entry only says that the default is right for the op. Every op that programs are
# drawn from needs an entry in one of the tables; `tests/generators/test_precision.py` asks for it.
KERNELS_DIFFER = {
    **dict.fromkeys(
        (
            *("sigmoid", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "sin"),
            *("cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh"),
            *("atanh", "atan2", "sinc", "erf", "erfc", "erfinv", "lgamma", "digamma", "polygamma"),
            *("mvlgamma", "igamma", "igammac", "i0", "logit", "xlogy", "pow", "hypot", "silu"),
            *("mish", "gelu", "elu", "celu"),
        ),
        "a library function without an exact result",
    ),
    "sqrt": "the vector library that eager calls does not round it correctly",
    **dict.fromkeys(("div", "reciprocal"), "may multiply by the reciprocal, or round in between"),
    **dict.fromkeys(("fmod", "remainder", "floor_divide"), "may divide, round and multiply"),
    **dict.fromkeys(
        ("lerp", "addcmul", "addcdiv", "addr", "hardsigmoid", "hardswish"), "multiplies and adds"
    ),
    **dict.fromkeys(("deg2rad", "rad2deg", "ldexp"), "multiplies by a constant that it rounds"),
    **dict.fromkeys(
        ("sum", "mean", "cumsum", "mm", "bmm", "mv", "dot", "addmm", "addmv", "addbmm", "baddbmm"),
        "adds in any order",
    ),
    **dict.fromkeys(("index_add", "scatter_add"), "adds equal indices in any order"),
    **dict.fromkeys(("renorm", "embedding_renorm"), "computes norms, which add in any order"),
    **dict.fromkeys(_TRAINING, "adds and multiplies in any order"),
    **dict.fromkeys(("prod", "cumprod"), "multiplies in any order"),
    **dict.fromkeys(("dropout", "feature_dropout"), "multiplies by a rounded factor"),
    **dict.fromkeys(("alpha_dropout", "feature_alpha_dropout"), "multiplies and adds"),
    "matmul": "calls one of mm, bmm, mv, dot",
    **dict.fromkeys(
        ("normal", "exponential", "geometric", "cauchy", "log_normal", "randn_like"),
        "random numbers that a library function transforms",
    ),
    **dict.fromkeys(
        ("native_dropout", "rrelu_with_noise"), "random numbers, multiplied by rounded factors"
    ),
}

# These jump: a last bit more or less in an operand can make them give another number. Most jump
# where a number is whole, or where two operands are equal.
JUMPS = {
    *("floor", "ceil", "trunc", "fix", "round", "frac", "sign", "sgn", "heaviside", "copysign"),
    *("remainder", "fmod", "floor_divide", "eq", "ne", "gt", "ge", "lt", "le", "greater", "less"),
    *("greater_equal", "less_equal", "not_equal", "argmax", "argmin", "sort", "min", "max"),
    *("cummax", "cummin", "threshold", "logical_not", "logical_and", "logical_or", "logical_xor"),
    *("any", "all", "signbit", "nextafter"),
}
