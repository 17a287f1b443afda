"""Ops that return new tensors, that may return their argument, or that draw random numbers."""

from __future__ import annotations

from aliasproof.generators import arguments as randoms
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.arguments import ADDMM, BADDBMM, BMM, MM, multiplies
from aliasproof.generators.operator import (
    at_least,
    complex_,
    exactly,
    floating,
    group,
    line,
    lines,
    not_bool,
    of_rank,
    real,
)

FUNCTIONAL = group(
    "functional",
    line("add.Tensor", not_bool, other=tensors.partner_or_number),
    line("add.Scalar", not_bool),
    line("sub.Tensor", not_bool, other=tensors.partner_or_number),
    line("mul.Tensor", other=tensors.partner_or_number),
    line("mul.Scalar"),
    line("neg.default", not_bool),
    line("abs.default", real),
    line("relu.default", real),
    line("clone.default"),
    line("zeros_like.default"),
    line("full_like.default", fill_value=numbers.number),
    line("gt.Scalar", real),
    line("eq.Tensor", other=tensors.partner),
    line("logical_not.default"),
    line("clamp.default", real, min=numbers.number),
    line("masked_fill.Scalar", value=numbers.number),
    line("where.self", other=tensors.partner),
    line("fill.Scalar"),
    line("copy.default"),
    line("cat.default", dim=numbers.dimension),
    line("stack.default"),
    line("addcmul.default", not_bool, value=numbers.number),
    line("flip.default", dims=numbers.dimension_in_list),
    line("roll.default", shifts=numbers.shift_in_list, dims=numbers.dimension_in_list),
    line("repeat.default", repeats=numbers.repetitions),
    *lines("ones_like.default remainder.Scalar pow.Tensor_Scalar"),
    *lines(
        "remainder.Tensor div.Tensor maximum.default logical_and.default bitwise_or.Tensor"
        " le.Tensor",
        other=tensors.partner,
    ),
    line("div.Tensor_mode", rounding_mode=numbers.rounding_mode),
    *lines("sigmoid.default exp.default sqrt.default floor.default sign.default"),
    *of_rank(at_least(2), *lines("tril.default triu.default", diagonal=numbers.offset_of_diagonal)),
)

# Scatters: the functional forms of a write through a view.
SCATTERS = group(
    "scatter",
    line(
        "select_scatter.default",
        src=tensors.source_for("aten.select.int", "dim", "index"),
        index=numbers.index_in_dimension,
    ),
    line(
        "slice_scatter.default",
        src=tensors.source_for("aten.slice.Tensor", "dim", "start", "end", "step"),
        **numbers.SLICE,
    ),
    line(
        "diagonal_scatter.default",
        src=tensors.source_for("aten.diagonal.default", "offset", "dim1", "dim2"),
        **numbers.DIAGONAL,
    ),
    line(
        "as_strided_scatter.default",
        src=tensors.source_for("aten.as_strided.default", "size", "stride", "storage_offset"),
        **numbers.AS_STRIDED,
    ),
)

# Reductions, scans and products.
REDUCTIONS = group(
    "reduction",
    line("sum.default", not_bool),
    line("sum.dim_IntList", not_bool, dim=numbers.dimension_in_list),
    *lines("amax.default amin.default any.default all.default mean.default"),
    line("mean.dim", dim=numbers.dimension_in_list, keepdim=numbers.flag),
    line("cumsum.default", not_bool),
    *of_rank(
        at_least(1),
        *lines("min.dim max.dim"),
        *lines("any.dim argmax.default prod.dim_int", dim=numbers.dimension),
        *lines("sort.stable", stable=numbers.one_of(True), dim=numbers.dimension),
    ),
    line("matmul.default", not_bool, other=tensors.matrix_for),
    *of_rank(
        exactly(2), line("mm.default", multiplies, **MM), line("addmm.default", multiplies, **ADDMM)
    ),
    *of_rank(
        exactly(3),
        line("bmm.default", multiplies, **BMM),
        line("baddbmm.default", multiplies, **BADDBMM),
    ),
)

# Ops that return their argument itself, or a view of it, if there is nothing to convert.
CONVERSIONS = group(
    "conversion",
    line("contiguous.default"),
    line("positive.default", not_bool),
    line("resolve_conj.default"),
    line("resolve_neg.default"),
    line("conj_physical.default", complex_),
    line("to.dtype", dtype=numbers.dtype_to_convert_to, copy=numbers.true_in(20)),
    line("to.dtype_layout", dtype=numbers.dtype_to_convert_to, copy=numbers.true_in(20)),
    line("to.device", device=numbers.own_device, dtype=numbers.dtype_to_convert_to),
    line("to.other", other=tensors.tensor_to_convert_like),
    line("type_as.default", other=tensors.tensor_to_convert_like),
    line("_to_copy.default", dtype=numbers.dtype_to_convert_to),
    # These prims return a copy, also where there is nothing to convert. Functionalization refuses
    # the prims that write or return a view.
    line("prims.clone.default"),
    line("prims.fill.default"),
    line("prims.convert_element_type.default", a=tensors.itself, dtype=numbers.dtype_to_convert_to),
    line("prims.copy_strided.default", a=tensors.itself, stride=numbers.strides_of_copy),
    line("prims.reshape.default", a=tensors.itself, shape=numbers.shape_of_copy),
    *of_rank(
        at_least(2),
        line(
            "prims.collapse.default",
            a=tensors.itself,
            start=numbers.one_of(0),
            end=numbers.one_of(1),
        ),
    ),
    line("atleast_1d.default"),
    line("atleast_2d.default"),
    line("atleast_3d.default"),
    # Nothing is dropped, so no random number is drawn and the operand itself is returned.
    *(
        line(
            f"{name}.default",
            floating,
            input=tensors.itself,
            p=numbers.probability,
            train=numbers.one_of(False),
        )
        for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
    ),
)

# Ops that draw random numbers. The generator is seeded before each run, so all runs draw the same.
_DROPPED = {"p": numbers.probability, "train": randoms.training}

RANDOM_DRAWS = group(
    "random",
    line("uniform_.default", floating),
    line("normal_.default", floating),
    line("bernoulli_.float", p=numbers.probability),
    line("bernoulli_.Tensor", p=randoms.probabilities),
    line("random_.default", real),
    line("random_.to", real, to=randoms.limit),
    line("exponential_.default", floating),
    line("geometric_.default", real, p=randoms.inner_probability),
    line("cauchy_.default", floating),
    line("log_normal_.default", floating),
    *(
        line(f"{name}_.default", floating, **_DROPPED)
        for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
    ),
    line("rrelu_.default", floating, training=randoms.training),
    line(
        "rrelu_with_noise_.default",
        floating,
        noise=tensors.tensor_of_own_kind,
        training=randoms.training,
    ),
    # New tensors.
    line("rand_like.default", floating),
    line("randn_like.default", floating),
    line("randint_like.default", real, high=randoms.limit),
    line("bernoulli.p", p=numbers.probability),
    line("native_dropout.default", floating, input=tensors.itself, **_DROPPED),
)
