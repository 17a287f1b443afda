"""Ops that give new tensors, those that may return their argument, and those that draw numbers."""

from __future__ import annotations

from aliasproof.generators import arguments as randoms
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators import view_arguments as views
from aliasproof.generators.arguments import ADDMM, BADDBMM, BMM, MM, multiplies
from aliasproof.generators.operator import (
    Operator,
    any_dtype,
    at_least,
    complex_,
    exactly,
    floating,
    line,
    lines,
    not_bool,
    of_rank,
    real,
)

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

# Scatters: the functional forms of a write through a view.
SCATTERS: tuple[Operator, ...] = (
    line(
        "scatter",
        "select_scatter.default",
        src=tensors.source_for("aten.select.int", "dim", "index"),
        index=numbers.index_in_dimension,
    ),
    line(
        "scatter",
        "slice_scatter.default",
        any_dtype,
        src=tensors.source_for("aten.slice.Tensor", "dim", "start", "end", "step"),
        **numbers.SLICE,
    ),
    line(
        "scatter",
        "diagonal_scatter.default",
        any_dtype,
        src=tensors.source_for("aten.diagonal.default", "offset", "dim1", "dim2"),
        **numbers.DIAGONAL,
    ),
    line(
        "scatter",
        "as_strided_scatter.default",
        any_dtype,
        src=tensors.source_for("aten.as_strided.default", "size", "stride", "storage_offset"),
        **numbers.AS_STRIDED,
    ),
)

# Reductions, scans and products.
REDUCTIONS: tuple[Operator, ...] = (
    line("reduction", "sum.default", not_bool),
    line("reduction", "sum.dim_IntList", not_bool, dim=numbers.dimension_in_list),
    *lines("reduction", "amax.default amin.default any.default all.default mean.default"),
    line("reduction", "mean.dim", dim=numbers.dimension_in_list, keepdim=numbers.flag),
    line("reduction", "cumsum.default", not_bool),
    *of_rank(
        at_least(1),
        *lines("reduction", "min.dim max.dim"),
        *lines("reduction", "any.dim argmax.default prod.dim_int", dim=numbers.dimension),
        *lines("reduction", "sort.stable", stable=numbers.one_of(True), dim=numbers.dimension),
    ),
    line("reduction", "matmul.default", not_bool, other=tensors.matrix_for),
    *of_rank(
        exactly(2),
        line("reduction", "mm.default", multiplies, **MM),
        line("reduction", "addmm.default", multiplies, **ADDMM),
    ),
    *of_rank(
        exactly(3),
        line("reduction", "bmm.default", multiplies, **BMM),
        line("reduction", "baddbmm.default", multiplies, **BADDBMM),
    ),
)

# Ops that return their argument itself, or a view of it, where nothing is to be changed.
CONVERSIONS: tuple[Operator, ...] = (
    line("conversion", "contiguous.default"),
    line("conversion", "positive.default", not_bool),
    line("conversion", "resolve_conj.default"),
    line("conversion", "resolve_neg.default"),
    line("conversion", "conj_physical.default", complex_),
    line("conversion", "to.dtype", dtype=views.dtype_to_convert_to, copy=views.truth),
    line("conversion", "to.dtype_layout", dtype=views.dtype_to_convert_to, copy=views.truth),
    line("conversion", "to.device", device=views.own_device, dtype=views.dtype_to_convert_to),
    line("conversion", "to.other", other=views.tensor_to_convert_like),
    line("conversion", "type_as.default", other=views.tensor_to_convert_like),
    line("conversion", "_to_copy.default", dtype=views.dtype_to_convert_to),
    line("conversion", "atleast_1d.default"),
    line("conversion", "atleast_2d.default"),
    line("conversion", "atleast_3d.default"),
    # Nothing is dropped, so no random number is drawn and the operand itself is returned.
    *(
        line(
            "conversion",
            f"{name}.default",
            floating,
            input=tensors.itself,
            p=views.probability,
            train=numbers.one_of(False),
        )
        for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
    ),
)

# Ops that draw random numbers. The generator is set before each run, so all runs draw alike.
_DROPPED = {"p": views.probability, "train": randoms.training}

RANDOM_DRAWS: tuple[Operator, ...] = (
    line("random", "uniform_.default", floating),
    line("random", "normal_.default", floating),
    line("random", "bernoulli_.float", p=views.probability),
    line("random", "bernoulli_.Tensor", p=randoms.probabilities),
    line("random", "random_.default", real),
    line("random", "random_.to", real, to=randoms.limit),
    line("random", "exponential_.default", floating),
    line("random", "geometric_.default", real, p=randoms.inner_probability),
    line("random", "cauchy_.default", floating),
    line("random", "log_normal_.default", floating),
    *(
        line("random", f"{name}_.default", floating, **_DROPPED)
        for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
    ),
    line("random", "rrelu_.default", floating, training=randoms.training),
    line(
        "random",
        "rrelu_with_noise_.default",
        floating,
        noise=randoms.noise,
        training=randoms.training,
    ),
    # New tensors.
    line("random", "rand_like.default", floating),
    line("random", "randn_like.default", floating),
    line("random", "randint_like.default", real, high=randoms.limit),
    line("random", "bernoulli.p", p=views.probability),
    line("random", "native_dropout.default", floating, input=tensors.itself, **_DROPPED),
)
