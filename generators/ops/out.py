"""Ops that write into a buffer."""

from __future__ import annotations

from aliasproof.generators import index_arguments as indices
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.arguments import ADDMM, ADDR, BADDBMM, BMM, MM, MV, OUTER, multiplies
from aliasproof.generators.operator import Operator, at_least, exactly, line, lines, of_rank

OUT: tuple[Operator, ...] = (
    # Element by element: they also cast to the dtype of the buffer.
    *lines(
        "out=",
        "add.out sub.out mul.out neg.out abs.out maximum.out minimum.out lerp.Scalar_out"
        " addcmul.out div.out pow.Tensor_Tensor_out remainder.Tensor_out atan2.out sigmoid.out"
        " exp.out sqrt.out round.out where.self_out",
    ),
    *lines("out=", "clamp.out", min=numbers.number),
    *lines("out=", "clamp.Tensor_out", max=tensors.operand),
    *lines(
        "out=",
        "gt.Scalar_out gt.Tensor_out le.Tensor_out eq.Tensor_out ne.Scalar_out logical_and.out"
        " logical_not.out bitwise_and.Tensor_out bitwise_not.out",
    ),
    # Products.
    *of_rank(
        exactly(2),
        line("out=", "mm.out", multiplies, **MM),
        line("out=", "mv.out", multiplies, **MV),
        line("out=", "addmm.out", multiplies, **ADDMM),
        line("out=", "addr.out", multiplies, **ADDR),
    ),
    *of_rank(
        exactly(3),
        line("out=", "bmm.out", multiplies, **BMM),
        line("out=", "baddbmm.out", multiplies, **BADDBMM),
    ),
    *of_rank(exactly(1), line("out=", "outer.out", multiplies, **OUTER)),
    # Reductions and scans.
    *of_rank(
        at_least(1),
        *lines(
            "out=",
            "sum.IntList_out mean.out amax.out amin.out",
            dim=numbers.dimension_in_list,
            keepdim=numbers.flag,
        ),
        *lines(
            "out=",
            "prod.int_out any.out all.out argmax.out argmin.out",
            dim=numbers.dimension,
            keepdim=numbers.flag,
        ),
        *lines("out=", "cumsum.out cumprod.out"),
        # Two results.
        *lines("out=", "min.dim_min max.dim_max cummax.out cummin.out"),
        *lines("out=", "aminmax.out", dim=numbers.dimension),
        *lines("out=", "sort.values_stable", stable=numbers.one_of(True), dim=numbers.dimension),
    ),
    # Moves.
    *lines("out=", "cat.out stack.out", dim=numbers.dimension),
    # Matrices only: with several, eager writes outside of a buffer whose strides do not fit.
    *of_rank(
        exactly(2),
        *lines("out=", "tril.out triu.out", diagonal=numbers.offset_of_diagonal),
    ),
    *of_rank(
        at_least(1),
        line("out=", "index_select.out"),
        line("out=", "gather.out", index=indices.positions_like),
        line("out=", "index_add.out", source=indices.rows_to_store),
        line("out=", "index_copy.out", source=indices.rows_to_store),
        *lines(
            "out=",
            "scatter.src_out scatter_add.out",
            index=indices.positions_like,
            src=indices.at_least_index,
        ),
    ),
    line("out=", "take.out", index=indices.positions_of_elements),
)
