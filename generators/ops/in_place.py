"""In-place ops: arithmetic, comparisons, matrices, and changes of metadata."""

from __future__ import annotations

from aliasproof.generators import arguments as metadata
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.arguments import ADDBMM, ADDMM, ADDMV, ADDR, BADDBMM, multiplies
from aliasproof.generators.operator import (
    at_least,
    exactly,
    floating,
    group,
    inexact,
    integer_or_bool,
    line,
    lines,
    not_bool,
    of_rank,
    real,
    seldom,
)

IN_PLACE = group(
    "in-place",
    line("add_.Tensor", not_bool),
    line("add_.Scalar", not_bool),
    line("sub_.Tensor", not_bool, alpha=numbers.number),
    line("mul_.Tensor"),
    line("mul_.Scalar"),
    line("div_.Tensor", inexact),
    line("neg_.default", not_bool),
    line("abs_.default", real),
    line("relu_.default", real),
    line("sign_.default", real),
    line("square_.default", not_bool),
    line("sigmoid_.default", floating),
    line("cos_.default", floating),
    line("bitwise_not_.default", integer_or_bool),
    line("logical_not_.default"),
    line("fill_.Scalar"),
    line("fill_.Tensor", value=tensors.scalar_tensor),
    line("zero_.default"),
    line("copy_.default"),
    line("clamp_.default", real, min=numbers.number),
    line("clamp_max_.default", real, max=numbers.number),
    line("lerp_.Scalar", inexact),
    line("addcmul_.default", not_bool, value=numbers.number),
    line("cumsum_.default", not_bool),
    line("masked_fill_.Scalar", value=numbers.number),
    line("masked_fill_.Tensor", value=tensors.scalar_tensor),
)

# The other in-place ops that compute elementwise.
POINTWISE = group(
    "pointwise",
    *lines(
        # The first ones are exact, since generation shrinks towards them.
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
        " float_power_.Scalar float_power_.Tensor addcdiv_.default cumprod_.default"
    ),
    # Fake kernels, and so all compilers, refuse complex numbers.
    line("nan_to_num_.default", real),
    # Eager computes the first power of a bool, but no other code of torch does.
    line("pow_.Scalar", not_bool),
    line("celu_.default", alpha=numbers.one_of(1.0, 2.0, 0.5)),
    line("gelu_.default", approximate=numbers.one_of("none", "tanh")),
    line("round_.decimals", decimals=numbers.one_of(1, 2, -1)),
    line("mvlgamma_.default", p=numbers.one_of(1, 2)),
    line("polygamma_.default", n=numbers.one_of(0, 1, 2)),
    line("lerp_.Tensor", weight=tensors.operand),
    line("clamp_.Tensor", min=tensors.operand, max=tensors.operand),
    line("div_.Scalar_mode", rounding_mode=numbers.rounding_mode),
    line("div_.Tensor_mode", rounding_mode=numbers.rounding_mode),
    # Aliases of ops above. The dispatcher calls the op itself, so they are drawn rarely.
    *seldom(
        lines(
            "absolute_.default negative_.default fix_.default arccos_.default arccosh_.default"
            " arcsin_.default arcsinh_.default arctan_.default arctan2_.default arctanh_.default"
            " relu6_.default selu_.default subtract_.Scalar subtract_.Tensor multiply_.Scalar"
            " multiply_.Tensor divide_.Scalar divide_.Tensor true_divide_.Scalar"
            " true_divide_.Tensor"
        )
    ),
    *seldom(lines("clip_.default", min=numbers.number)),
    *seldom(lines("clip_.Tensor", max=tensors.operand)),
    *seldom(lines("divide_.Scalar_mode divide_.Tensor_mode", rounding_mode=numbers.rounding_mode)),
)

# In-place ops that compare, and logical and bitwise ones.
COMPARISONS = group(
    "comparison",
    *lines(
        "gt_.Scalar gt_.Tensor ge_.Scalar ge_.Tensor lt_.Scalar lt_.Tensor le_.Scalar le_.Tensor"
        " eq_.Scalar eq_.Tensor ne_.Scalar ne_.Tensor"
        " logical_and_.default logical_or_.default logical_xor_.default"
        " bitwise_and_.Scalar bitwise_and_.Tensor bitwise_or_.Scalar bitwise_or_.Tensor"
        " bitwise_xor_.Scalar bitwise_xor_.Tensor"
    ),
    *lines(
        "bitwise_left_shift_.Tensor bitwise_right_shift_.Tensor",
        other=tensors.operand_of_same_dtype,
    ),
    *lines(
        "bitwise_left_shift_.Tensor_Scalar bitwise_right_shift_.Tensor_Scalar",
        other=numbers.one_of(0, 1, 2, 7),
    ),
    # Aliases of ops above.
    *seldom(
        lines(
            "greater_.Scalar greater_.Tensor greater_equal_.Scalar greater_equal_.Tensor"
            " less_.Scalar less_.Tensor less_equal_.Scalar less_equal_.Tensor"
            " not_equal_.Scalar not_equal_.Tensor"
            " __iand__.Scalar __iand__.Tensor __ior__.Scalar __ior__.Tensor"
            " __ixor__.Scalar __ixor__.Tensor"
        )
    ),
    *seldom(lines("__ilshift__.Tensor __irshift__.Tensor", other=tensors.operand_of_same_dtype)),
    *seldom(lines("__ilshift__.Scalar __irshift__.Scalar", other=numbers.one_of(0, 1, 2, 7))),
)

# In-place ops on matrices.
MATRICES = group(
    "matrix",
    *of_rank(exactly(1), line("addmv_.default", multiplies, **ADDMV)),
    *of_rank(
        exactly(2),
        line("addmm_.default", multiplies, **ADDMM),
        line("addr_.default", multiplies, **ADDR),
        line("addbmm_.default", multiplies, **ADDBMM),
        # Beyond rank 2, eager requires equal sizes. If the operand overlaps itself, an element has
        # several positions, and the op writes only some of them.
        line(
            "fill_diagonal_.default",
            fill_value=numbers.number_for_distinct,
            wrap=numbers.wrap_of_diagonal,
        ),
    ),
    *of_rank(exactly(3), line("baddbmm_.default", multiplies, **BADDBMM)),
    *of_rank(
        at_least(2),
        line("triu_.default", diagonal=numbers.offset_of_diagonal),
        line("tril_.default"),
        line("renorm_.default", p=numbers.one_of(1, 2), maxnorm=numbers.one_of(1, 2, 5)),
    ),
)

# In-place ops that change sizes, strides, offset or storage of their argument.
METADATA_CHANGES = group(
    "metadata",
    line("t_.default"),
    line("transpose_.default"),
    line("swapaxes_.default", axis0=numbers.dimension, axis1=numbers.dimension),
    line("swapdims_.default"),
    line("squeeze_.default"),
    line("squeeze_.dim"),
    line("squeeze_.dims", dim=numbers.some_dimensions),
    line("unsqueeze_.default", dim=numbers.dimension_to_insert),
    line("as_strided_.default", **numbers.AS_STRIDED),
    line("detach_.default"),
    # Another storage.
    line("set_.source_Tensor", source=tensors.tensor_of_own_dtype),
    line(
        "set_.source_Tensor_storage_offset",
        source=metadata.source_with_room,
        storage_offset=metadata.small_offset,
        size=metadata.few_sizes,
        stride=metadata.dense_or_reversed_strides,
    ),
    line("set_.default"),
    # Another size of the storage.
    line("resize_.default", size=metadata.new_sizes),
    line("resize_as_.default", the_template=tensors.any_tensor),
)
