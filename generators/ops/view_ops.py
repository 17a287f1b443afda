"""Views."""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators import view_arguments as views
from aliasproof.generators.operator import Operator, any_dtype, complex_, line, not_bool, real_part

VIEWS: tuple[Operator, ...] = (
    line("view", "select.int", index=numbers.index_in_dimension),
    line("view", "slice.Tensor", any_dtype, **numbers.SLICE),
    line(
        "view",
        "narrow.default",
        start=numbers.start_in_dimension,
        length=numbers.length_in_dimension,
    ),
    line("view", "narrow.Tensor", start=views.start_as_tensor, length=views.length_behind_tensor),
    # Permutations of dimensions.
    line("view", "transpose.int"),
    line("view", "swapaxes.default", axis0=numbers.dimension, axis1=numbers.dimension),
    line("view", "swapdims.default"),
    line("view", "t.default"),
    line("view", "mT.default"),
    line("view", "mH.default"),
    line("view", "matrix_H.default"),
    line("view", "adjoint.default"),
    line("view", "numpy_T.default"),
    line("view", "permute.default"),
    *(
        operator
        for name in ("movedim", "moveaxis")
        for operator in (
            line("view", f"{name}.int", source=numbers.dimension, destination=numbers.dimension),
            line(
                "view",
                f"{name}.intlist",
                source=views.as_many_dimensions,
                destination=views.some_dimensions,
            ),
        )
    ),
    # Other sizes for the same elements.
    line("view", "view.default", size=numbers.new_shape),
    line("view", "view_as.default", other=views.tensor_of_same_length),
    line("view", "reshape.default", shape=numbers.new_shape),
    line("view", "reshape_as.default", other=views.tensor_of_same_length),
    line("view", "_reshape_alias.default", size=numbers.new_shape, stride=views.strides_of_reshape),
    line("view", "flatten.using_ints"),
    line("view", "ravel.default"),
    line("view", "unflatten.int", sizes=numbers.factors),
    line("view", "squeeze.default"),
    line("view", "squeeze.dim"),
    line("view", "squeeze.dims", dim=views.some_dimensions),
    line("view", "unsqueeze.default", dim=numbers.dimension_to_insert),
    # An element is shown more than once.
    line("view", "expand.default", size=numbers.larger_shape),
    line("view", "expand_as.default", other=views.tensor_to_expand_to),
    line("view", "broadcast_to.default", size=numbers.larger_shape),
    line("view", "unfold.default", size=numbers.window, step=numbers.step),
    line("view", "diagonal.default", any_dtype, **numbers.DIAGONAL),
    line("view", "linalg_diagonal.default", A=tensors.itself, offset=numbers.offset_of_diagonal),
    # Several views at once.
    line("view", "split.Tensor", dim=numbers.dimension, split_size=numbers.piece),
    line("view", "split.sizes", dim=numbers.dimension, split_size=views.sizes_of_pieces),
    line(
        "view", "split_with_sizes.default", dim=numbers.dimension, split_sizes=views.sizes_of_pieces
    ),
    line("view", "chunk.default", dim=numbers.dimension, chunks=numbers.pieces),
    line("view", "tensor_split.sections", dim=numbers.dimension, sections=numbers.pieces),
    line("view", "tensor_split.indices", dim=numbers.dimension, indices=views.cuts),
    line("view", "hsplit.int", sections=views.sections_of(1)),
    line("view", "hsplit.array", indices=views.cuts_of(1)),
    line("view", "vsplit.int", sections=views.sections_of(0)),
    line("view", "vsplit.array", indices=views.cuts_of(0)),
    line("view", "dsplit.int", sections=views.sections_of(2)),
    line("view", "dsplit.array", indices=views.cuts_of(2)),
    line("view", "unbind.int", dim=numbers.dimension),
    line("view", "as_strided.default", any_dtype, **numbers.AS_STRIDED),
    # The same bytes, read in another way.
    line("view", "view.dtype", dtype=numbers.dtype_of_other_size),
    line("view", "view_as_real.default", complex_),
    line("view", "view_as_complex.default", real_part),
    line("view", "real.default", complex_),
    line("view", "imag.default", complex_),
    line("view", "_conj.default", complex_),
    line("view", "conj.default", complex_),
    line("view", "_neg_view.default", not_bool),
    # All of the tensor.
    line("view", "detach.default"),
    line("view", "alias.default"),
)
