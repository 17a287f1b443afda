"""In-place ops: arithmetic, comparisons, matrices, and changes of metadata."""

from __future__ import annotations

from aliasproof.generators import arguments as metadata
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators import view_arguments as views
from aliasproof.generators.arguments import ADDBMM, ADDMM, ADDMV, ADDR, BADDBMM, multiplies
from aliasproof.generators.operator import (
    Operator,
    any_dtype,
    at_least,
    exactly,
    floating,
    inexact,
    integer_or_bool,
    line,
    lines,
    not_bool,
    of_rank,
    real,
    seldom,
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

# The other in-place ops that compute element by element.
POINTWISE: tuple[Operator, ...] = (
    *lines(
        "pointwise",
        # The first ones are exact; generation shrinks towards them.
        "ceil_.default floor_.default round_.default trunc_.default frac_.default sgn_.default"
        " conj_physical_.default sub_.Scalar clamp_min_.default"
        " clamp_min_.Tensor clamp_max_.Tensor fmod_.Scalar fmod_.Tensor remainder_.Scalar"
        " remainder_.Tensor floor_divide_.Scalar floor_divide_.Tensor gcd_.default lcm_.default"
        " heaviside_.default copysign_.Scalar copysign_.Tensor nextafter_.default"
        " threshold_.default hardtanh_.default leaky_relu_.default"
        " _add_relu_.Scalar _add_relu_.Tensor"
        " exp_.default exp2_.default expm1_.default log_.default log2_.default log10_.default"
        " log1p_.default sqrt_.default rsqrt_.default reciprocal_.default sin_.default"
        " tan_.default sinh_.default cosh_.default tanh_.default asin_.default acos_.default"
        " atan_.default asinh_.default acosh_.default atanh_.default sinc_.default erf_.default"
        " erfc_.default erfinv_.default lgamma_.default digamma_.default i0_.default"
        " logit_.default deg2rad_.default rad2deg_.default silu_.default mish_.default"
        " hardsigmoid_.default hardswish_.default elu_.default"
        " atan2_.default hypot_.default igamma_.default igammac_.default ldexp_.default"
        " xlogy_.Scalar_Other xlogy_.Tensor pow_.Tensor div_.Scalar"
        " float_power_.Scalar float_power_.Tensor addcdiv_.default cumprod_.default",
    ),
    # The fake kernel refuses complex numbers, and so does each compiler.
    line("pointwise", "nan_to_num_.default", real),
    # Eager computes the first power of a bool, and no other code of torch does.
    line("pointwise", "pow_.Scalar", not_bool),
    line("pointwise", "celu_.default", alpha=numbers.one_of(1.0, 2.0, 0.5)),
    line("pointwise", "gelu_.default", approximate=numbers.one_of("none", "tanh")),
    line("pointwise", "round_.decimals", decimals=numbers.one_of(1, 2, -1)),
    line("pointwise", "mvlgamma_.default", p=numbers.one_of(1, 2)),
    line("pointwise", "polygamma_.default", n=numbers.one_of(0, 1, 2)),
    line("pointwise", "lerp_.Tensor", weight=tensors.operand),
    line("pointwise", "clamp_.Tensor", min=tensors.operand, max=tensors.operand),
    line("pointwise", "div_.Scalar_mode", rounding_mode=numbers.rounding_mode),
    line("pointwise", "div_.Tensor_mode", rounding_mode=numbers.rounding_mode),
    # Other names of ops above. The dispatcher calls the op itself, so they are drawn seldom.
    *seldom(
        lines(
            "pointwise",
            "absolute_.default negative_.default fix_.default arccos_.default arccosh_.default"
            " arcsin_.default arcsinh_.default arctan_.default arctan2_.default arctanh_.default"
            " relu6_.default selu_.default subtract_.Scalar subtract_.Tensor multiply_.Scalar"
            " multiply_.Tensor divide_.Scalar divide_.Tensor true_divide_.Scalar"
            " true_divide_.Tensor",
        )
    ),
    *seldom(lines("pointwise", "clip_.default", min=numbers.number)),
    *seldom(lines("pointwise", "clip_.Tensor", max=tensors.operand)),
    *seldom(
        lines(
            "pointwise",
            "divide_.Scalar_mode divide_.Tensor_mode",
            rounding_mode=numbers.rounding_mode,
        )
    ),
)

# In-place ops that compare, and logical and bitwise ones.
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

# In-place ops on matrices.
MATRICES: tuple[Operator, ...] = (
    *of_rank(exactly(1), line("matrix", "addmv_.default", multiplies, **ADDMV)),
    *of_rank(
        exactly(2),
        line("matrix", "addmm_.default", multiplies, **ADDMM),
        line("matrix", "addr_.default", multiplies, **ADDR),
        line("matrix", "addbmm_.default", multiplies, **ADDBMM),
        # Beyond rank 2, eager wants all sizes equal.
        # Where the operand overlaps itself, it writes some of the places of an element.
        line(
            "matrix",
            "fill_diagonal_.default",
            fill_value=numbers.number_for_distinct,
            wrap=numbers.wrap_of_diagonal,
        ),
    ),
    *of_rank(exactly(3), line("matrix", "baddbmm_.default", multiplies, **BADDBMM)),
    *of_rank(
        at_least(2),
        line("matrix", "triu_.default", diagonal=numbers.offset_of_diagonal),
        line("matrix", "tril_.default"),
        line("matrix", "renorm_.default", p=numbers.one_of(1, 2), maxnorm=numbers.one_of(1, 2, 5)),
    ),
)

# In-place ops that change sizes, strides, offset or storage of their argument.
METADATA_CHANGES: tuple[Operator, ...] = (
    line("metadata", "t_.default"),
    line("metadata", "transpose_.default"),
    line("metadata", "swapaxes_.default", axis0=numbers.dimension, axis1=numbers.dimension),
    line("metadata", "swapdims_.default"),
    line("metadata", "squeeze_.default"),
    line("metadata", "squeeze_.dim"),
    line("metadata", "squeeze_.dims", dim=views.some_dimensions),
    line("metadata", "unsqueeze_.default", dim=numbers.dimension_to_insert),
    line("metadata", "as_strided_.default", any_dtype, **numbers.AS_STRIDED),
    line("metadata", "detach_.default"),
    # Another storage.
    line("metadata", "set_.source_Tensor", source=metadata.tensor_of_own_dtype),
    line(
        "metadata",
        "set_.source_Tensor_storage_offset",
        source=metadata.source_with_room,
        storage_offset=metadata.small_offset,
        size=metadata.few_sizes,
        stride=metadata.dense_or_reversed_strides,
    ),
    line("metadata", "set_.default"),
    # Another size of the storage.
    line("metadata", "resize_.default", size=metadata.new_sizes),
    line("metadata", "resize_as_.default", the_template=metadata.any_tensor),
)
