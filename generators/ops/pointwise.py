"""The other in-place ops that compute element by element."""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.operator import Operator, line, lines, not_bool, real, seldom

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
