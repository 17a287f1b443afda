"""Views."""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.draft import Drawer
from aliasproof.generators.operator import complex_, group, line, lines, not_bool, real_part

_MOVED: dict[str, Drawer] = dict.fromkeys(("source", "destination"), numbers.dimension)
_MOVED_LISTS: dict[str, Drawer] = {
    "source": numbers.as_many_dimensions,
    "destination": numbers.some_dimensions,
}

VIEWS = group(
    "view",
    line("select.int", index=numbers.index_in_dimension),
    line("slice.Tensor", **numbers.SLICE),
    line("narrow.default", start=numbers.start_in_dimension, length=numbers.length_in_dimension),
    line("narrow.Tensor", start=numbers.start_as_tensor, length=numbers.length_behind_tensor),
    # Permutations of dimensions.
    line("transpose.int"),
    line("swapaxes.default", axis0=numbers.dimension, axis1=numbers.dimension),
    line("swapdims.default"),
    *lines("t.default mT.default mH.default matrix_H.default adjoint.default numpy_T.default"),
    line("permute.default"),
    line("movedim.int", **_MOVED),
    line("movedim.intlist", **_MOVED_LISTS),
    line("moveaxis.int", **_MOVED),
    line("moveaxis.intlist", **_MOVED_LISTS),
    # Other sizes for the same elements.
    line("view.default", size=numbers.new_shape),
    line("view_as.default", other=tensors.tensor_of_same_length),
    line("reshape.default", shape=numbers.new_shape),
    line("reshape_as.default", other=tensors.tensor_of_same_length),
    line("_reshape_alias.default", size=numbers.new_shape, stride=numbers.strides_of_reshape),
    line("flatten.using_ints"),
    line("ravel.default"),
    line("unflatten.int", sizes=numbers.factors),
    line("squeeze.default"),
    line("squeeze.dim"),
    line("squeeze.dims", dim=numbers.some_dimensions),
    line("unsqueeze.default", dim=numbers.dimension_to_insert),
    # Views that show an element more than once.
    line("expand.default", size=numbers.larger_shape),
    line("expand_as.default", other=tensors.tensor_to_expand_to),
    line("broadcast_to.default", size=numbers.larger_shape),
    line("unfold.default", size=numbers.window, step=numbers.step),
    line("diagonal.default", **numbers.DIAGONAL),
    line("linalg_diagonal.default", A=tensors.itself, offset=numbers.offset_of_diagonal),
    # Ops that return several views.
    line("split.Tensor", dim=numbers.dimension, split_size=numbers.piece),
    line("split.sizes", dim=numbers.dimension, split_size=numbers.sizes_of_pieces),
    line("split_with_sizes.default", dim=numbers.dimension, split_sizes=numbers.sizes_of_pieces),
    line("chunk.default", dim=numbers.dimension, chunks=numbers.pieces),
    line("tensor_split.sections", dim=numbers.dimension, sections=numbers.pieces),
    line("tensor_split.indices", dim=numbers.dimension, indices=numbers.cuts),
    line("hsplit.int", sections=numbers.sections_of(1)),
    line("hsplit.array", indices=numbers.cuts_of(1)),
    line("vsplit.int", sections=numbers.sections_of(0)),
    line("vsplit.array", indices=numbers.cuts_of(0)),
    line("dsplit.int", sections=numbers.sections_of(2)),
    line("dsplit.array", indices=numbers.cuts_of(2)),
    line("unbind.int", dim=numbers.dimension),
    line("as_strided.default", **numbers.AS_STRIDED),
    # The same bytes, reinterpreted.
    line("view.dtype", dtype=numbers.dtype_of_other_size),
    line("view_as_real.default", complex_),
    line("view_as_complex.default", real_part),
    *lines("real.default imag.default _conj.default conj.default", complex_),
    line("_neg_view.default", not_bool),
    # Views of the whole tensor.
    line("detach.default"),
    line("alias.default"),
)
