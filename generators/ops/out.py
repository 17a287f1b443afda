"""Ops that write into a buffer."""

from __future__ import annotations

from aliasproof.generators import index_arguments as indices
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.arguments import ADDMM, ADDR, BADDBMM, BMM, MM, MV, OUTER, multiplies
from aliasproof.generators.operator import at_least, exactly, group, line, lines, of_rank

OUT = group(
    "out=",
    # Elementwise; these also cast to the dtype of the buffer.
    *lines(
        "add.out sub.out mul.out neg.out abs.out maximum.out minimum.out lerp.Scalar_out"
        " addcmul.out div.out pow.Tensor_Tensor_out remainder.Tensor_out atan2.out sigmoid.out"
        " exp.out sqrt.out round.out where.self_out"
    ),
    *lines("clamp.out", min=numbers.number),
    *lines("clamp.Tensor_out", max=tensors.operand),
    *lines(
        "gt.Scalar_out gt.Tensor_out le.Tensor_out eq.Tensor_out ne.Scalar_out logical_and.out"
        " logical_not.out bitwise_and.Tensor_out bitwise_not.out"
    ),
    # Products.
    *of_rank(
        exactly(2),
        line("mm.out", multiplies, **MM),
        line("mv.out", multiplies, **MV),
        line("addmm.out", multiplies, **ADDMM),
        line("addr.out", multiplies, **ADDR),
    ),
    *of_rank(
        exactly(3), line("bmm.out", multiplies, **BMM), line("baddbmm.out", multiplies, **BADDBMM)
    ),
    *of_rank(exactly(1), line("outer.out", multiplies, **OUTER)),
    # Reductions and scans.
    *of_rank(
        at_least(1),
        *lines(
            "sum.IntList_out mean.out amax.out amin.out",
            dim=numbers.dimension_in_list,
            keepdim=numbers.flag,
        ),
        *lines(
            "prod.int_out any.out all.out argmax.out argmin.out",
            dim=numbers.dimension,
            keepdim=numbers.flag,
        ),
        *lines("cumsum.out cumprod.out"),
        # Two results.
        *lines("min.dim_min max.dim_max cummax.out cummin.out"),
        *lines("aminmax.out", dim=numbers.dimension),
        *lines("sort.values_stable", stable=numbers.one_of(True), dim=numbers.dimension),
    ),
    # Ops that move elements.
    *lines("cat.out stack.out", dim=numbers.dimension),
    # Only matrices: for batches, eager writes outside of a buffer whose strides do not fit.
    *of_rank(exactly(2), *lines("tril.out triu.out", diagonal=numbers.offset_of_diagonal)),
    *of_rank(
        at_least(1),
        line("index_select.out"),
        line("gather.out", index=indices.positions_like),
        line("index_add.out", source=indices.rows_to_store),
        line("index_copy.out", source=indices.rows_to_store),
        *lines(
            "scatter.src_out scatter_add.out",
            index=indices.positions_like,
            src=indices.at_least_index,
        ),
    ),
    line("take.out", index=indices.positions_of_elements),
)
