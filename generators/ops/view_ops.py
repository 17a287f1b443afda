"""Views."""

from __future__ import annotations

from generators import number_arguments as numbers
from generators.operator import Operator, complex_, line, real_part

VIEWS: tuple[Operator, ...] = (
    line("view", "select.int", index=numbers.index_in_dimension),
    line(
        "view",
        "slice.Tensor",
        dim=numbers.dimension,
        start=numbers.start_in_dimension,
        end=numbers.end_in_dimension,
        step=numbers.step,
    ),
    line(
        "view",
        "narrow.default",
        start=numbers.start_in_dimension,
        length=numbers.length_in_dimension,
    ),
    line("view", "transpose.int"),
    line("view", "t.default"),
    line("view", "permute.default"),
    line("view", "view.default", size=numbers.reshaped),
    line("view", "reshape.default", shape=numbers.reshaped),
    line("view", "flatten.using_ints"),
    line("view", "unflatten.int", sizes=numbers.factors),
    line("view", "expand.default", size=numbers.expanded),
    line("view", "squeeze.default"),
    line("view", "squeeze.dim"),
    line("view", "unsqueeze.default", dim=numbers.dimension_to_insert),
    line(
        "view",
        "diagonal.default",
        offset=numbers.offset_of_diagonal,
        dim1=numbers.dimension,
        dim2=numbers.other_dimension,
    ),
    line("view", "unfold.default", size=numbers.window, step=numbers.step),
    line("view", "split.Tensor", dim=numbers.dimension, split_size=numbers.piece),
    line("view", "chunk.default", dim=numbers.dimension, chunks=numbers.pieces),
    line("view", "unbind.int", dim=numbers.dimension),
    line(
        "view",
        "as_strided.default",
        size=numbers.strided_sizes,
        stride=numbers.strided_strides,
        storage_offset=numbers.strided_offset,
    ),
    line("view", "view.dtype", dtype=numbers.dtype_of_other_size),
    line("view", "view_as_real.default", complex_),
    line("view", "view_as_complex.default", real_part),
    line("view", "real.default", complex_),
    line("view", "imag.default", complex_),
    line("view", "detach.default"),
    line("view", "alias.default"),
)
