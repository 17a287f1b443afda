"""Reads and stores by index."""

from __future__ import annotations

from aliasproof.generators import index_arguments as indices
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.draft import Drawer
from aliasproof.generators.operator import (
    Operator,
    exactly,
    group,
    line,
    lines,
    of_rank,
    often,
    seldom,
)

_OF_SCATTER: dict[str, Drawer] = {"index": indices.positions_like}
_WITH_SOURCE: dict[str, Drawer] = {**_OF_SCATTER, "src": indices.at_least_index}
_OF_PUT: dict[str, Drawer] = {
    "index": indices.positions_of_elements,
    "source": indices.as_many_as_index,
    "accumulate": numbers.flag,
}
_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")

_STORES: tuple[Operator, ...] = (
    *lines(
        "index_put_.default index_put.default _index_put_impl_.default",
        values=indices.values_to_put,
        accumulate=numbers.flag,
    ),
    *lines(
        "index_copy_.default index_add_.default index_copy.default index_add.default",
        source=indices.rows_to_store,
    ),
    *lines("index_fill_.int_Scalar index_fill.int_Scalar"),
    *lines("index_fill_.int_Tensor index_fill.int_Tensor", value=tensors.scalar_tensor),
    *lines(
        "index_reduce_.default index_reduce.default",
        source=indices.rows_to_store,
        reduce=numbers.one_of(*_REDUCTIONS[1:]),
        include_self=numbers.flag,
    ),
    *lines("scatter_.src scatter_add_.default scatter.src scatter_add.default", **_WITH_SOURCE),
    *lines("scatter_.value scatter.value", **_OF_SCATTER),
    *lines(
        "scatter_.reduce scatter.reduce", reduce=numbers.one_of("add", "multiply"), **_WITH_SOURCE
    ),
    *lines(
        "scatter_.value_reduce scatter.value_reduce",
        reduce=numbers.one_of("add", "multiply"),
        **_OF_SCATTER,
    ),
    *lines(
        "scatter_reduce_.two scatter_reduce.two",
        reduce=numbers.one_of(*_REDUCTIONS),
        include_self=numbers.flag,
        **_WITH_SOURCE,
    ),
    *lines("put_.default put.default", **_OF_PUT),
    *lines("masked_scatter_.default masked_scatter.default", source=indices.as_many_as_mask),
    *of_rank(
        exactly(2),
        line(
            "embedding_renorm_.default",
            indices=indices.positions_of_rows,
            max_norm=numbers.one_of(1.0, 2.0),
            norm_type=numbers.one_of(1.0, 2.0),
        ),
    ),
)

INDEXED = group(
    "indexed",
    # Real programs write by index more often than they make a new tensor.
    *often(*(op for op in _STORES if op.writes)),
    *seldom(op for op in _STORES if not op.writes),
    # Reads.
    *seldom(lines("index.Tensor index_select.default")),
    *seldom(lines("gather.default", **_OF_SCATTER)),
    *seldom(lines("take.default", index=indices.positions_of_elements)),
)
