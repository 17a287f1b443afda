"""How arguments other than tensors are drawn: numbers, dimensions, shapes and dtypes.

Every function here takes the `Draft` of the call so far and returns one argument, or raises
`NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.eager.definedness_rules import is_integer
from aliasproof.generators.draft import Draft, Drawer
from aliasproof.generators.scene import NoChoice
from aliasproof.ir.program import Argument, Ref
from aliasproof.ir.regions import Region, capacity, dense_strides, overlaps_itself, reach

# --- numbers and dimensions -----------------------------------------------------------------------


def number(draft: Draft) -> Argument:
    """A small integer that the dtype of the first tensor can represent."""
    if draft.self.dtype == torch.bool:
        return draft.pick.chance(50)
    # Algebraic rewrites treat 0, 1 and -1 specially; the other numbers change every value.
    return draft.pick.one([2, 3, 0, 1, -1, 5])


def one_of(*choices: Argument) -> Drawer:
    """A drawer for one of these arguments."""
    return lambda draft: draft.pick.one(choices)


def true_in(percent: int) -> Drawer:
    """A drawer for True with this probability, in percent, else False."""
    return lambda draft: draft.pick.chance(percent)


flag = true_in(50)


def rounding_mode(draft: Draft) -> Argument:
    """How a division rounds. It must round integers: eager cannot store a fraction in them."""
    modes = ("trunc", "floor")
    return draft.pick.one(modes if is_integer(draft.self.dtype) else (*modes, None))


def number_for_distinct(draft: Draft) -> Argument:
    """A number for a first tensor that does not overlap itself."""
    if overlaps_itself(Region.of(draft.self)):
        raise NoChoice
    return number(draft)


def dimension(draft: Draft) -> Argument:
    """A dimension of the first tensor, counted from the front or the back."""
    rank = draft.self.dim()
    if rank == 0:
        raise NoChoice
    # A pass must see that dimension -1 of a matrix is its dimension 1.
    chosen: int = draft.pick.one([*range(rank), *range(-1, -rank - 1, -1)])
    return chosen


def dimension_in_list(draft: Draft) -> Argument:
    """A list of one dimension."""
    return (dimension(draft),)


shift_in_list = one_of((1,), (-1,), (2,))


def repetitions(draft: Draft) -> Argument:
    """How often each dimension is repeated: one of them twice, the others once."""
    rank = draft.self.dim()
    dim = draft.pick.integer(0, rank)  # the last one is a new leading dimension
    counts = [1] * (rank + (dim == rank))
    counts[dim - rank] = 2
    return tuple(counts)


def dimension_to_insert(draft: Draft) -> Argument:
    """The index of a new dimension."""
    return draft.pick.integer(0, draft.self.dim())


def other_dimension(draft: Draft) -> Argument:
    """A dimension other than `dim1`, for a diagonal."""
    rank = draft.self.dim()
    return draft.pick.one([dim for dim in range(rank) if dim != draft.integer("dim1") % rank])


def some_dimensions(draft: Draft) -> Argument:
    """One or two different dimensions, some counted from the back."""
    rank = draft.self.dim()
    if rank == 0:
        raise NoChoice
    return _different(draft, draft.pick.integer(1, min(rank, 2)))


def as_many_dimensions(draft: Draft) -> Argument:
    """Distinct dimensions, as many as `destination` has."""
    return _different(draft, len(draft.elements("destination")))


def _different(draft: Draft, count: int) -> tuple[int, ...]:
    rank = draft.self.dim()
    rest, chosen = list(range(rank)), []
    for _ in range(count):
        dim = rest.pop(draft.pick.integer(0, len(rest) - 1))
        chosen.append(dim - rank if draft.pick.chance(30) else dim)
    return tuple(chosen)


def extent(draft: Draft) -> int:
    """The size of the dimension drawn as `dim` or `dimension`."""
    dim = draft.drawn.get("dim", draft.drawn.get("dimension"))
    assert isinstance(dim, int)
    return draft.self.shape[dim]


def index_in_dimension(draft: Draft) -> Argument:
    """An index into the dimension drawn, counted from the front or the back."""
    size = extent(draft)
    if size == 0:
        raise NoChoice
    return draft.pick.one((0, size - 1, size // 2, -1))


def start_in_dimension(draft: Draft) -> Argument:
    """The start of a slice of the dimension drawn."""
    # A start equal to the size is legal: the slice is empty.
    return draft.pick.integer(0, min(extent(draft), 3))


def end_in_dimension(draft: Draft) -> Argument:
    """The end of a slice: past the last index, or near the start."""
    start = draft.integer("start")
    # torch writes an open end as 2**63 - 1. Eager clamps every end beyond the size.
    return draft.pick.one((2**63 - 1, start + 1, start + 2, max(extent(draft) - 1, start)))


step = one_of(1, 2, 3)  # one, or one that leaves gaps


def length_in_dimension(draft: Draft) -> Argument:
    """A length of a slice that begins at `start`."""
    return draft.pick.integer(0, extent(draft) - draft.integer("start"))


def window(draft: Draft) -> Argument:
    """The size of a window that slides over the dimension drawn."""
    return draft.pick.integer(1, min(extent(draft), 3))


def piece(draft: Draft) -> Argument:
    """The size of the pieces of a split into few pieces."""
    size = extent(draft)
    # At most four pieces: a scene drops calls with more results.
    return draft.pick.integer(max(1, (size + 3) // 4), max(1, size))


def pieces(draft: Draft) -> Argument:
    """A number of chunks."""
    return draft.pick.integer(1, 3)


offset_of_diagonal = one_of(0, 1, -1)  # the main diagonal or a neighbour of it


def wrap_of_diagonal(draft: Draft) -> Argument:
    """Whether a diagonal continues below a square matrix.

    Not if the rows there have gaps: eager then fills some gaps, which are outside of its argument.
    """
    rows = draft.self.stride(0), draft.self.stride(1) * draft.self.shape[1]
    return rows[0] == rows[1] and flag(draft)


# --- cuts of a dimension --------------------------------------------------------------------------


def sizes_of_pieces(draft: Draft) -> Argument:
    """The sizes of up to three pieces, perhaps empty, that fill the dimension drawn."""
    size = extent(draft)
    ends = sorted(draft.pick.integer(0, size) for _ in range(draft.pick.integer(0, 2)))
    return tuple(end - start for start, end in zip((0, *ends), (*ends, size), strict=True))


def cuts(draft: Draft) -> Argument:
    """Up to two indices at which to cut the dimension drawn."""
    return _cuts(draft, extent(draft))


def _cuts(draft: Draft, size: int) -> tuple[int, ...]:
    # A cut beyond the end gives an empty piece, which torch allows.
    return tuple(sorted(draft.pick.integer(0, size + 1) for _ in range(draft.pick.integer(1, 2))))


def _size_to_split(draft: Draft, dim: int) -> int:
    """The size of the dimension that `vsplit` (0), `hsplit` (1) or `dsplit` (2) cuts."""
    shape = draft.self.shape
    if dim == 1 and len(shape) == 1:
        return shape[0]  # `hsplit` of a vector
    if len(shape) < max(dim + 1, 2):
        raise NoChoice
    return shape[dim]


def sections_of(dim: int) -> Drawer:
    """A drawer for a number of equal sections of a fixed dimension."""

    def drawer(draft: Draft) -> Argument:
        size = _size_to_split(draft, dim)
        return draft.pick.one([count for count in (1, 2, 3, 4) if size % count == 0])

    return drawer


def cuts_of(dim: int) -> Drawer:
    """A drawer for indices at which to cut a fixed dimension."""
    return lambda draft: _cuts(draft, _size_to_split(draft, dim))


# Tensors whose data decide sizes: the program is then data-dependent.


def start_as_tensor(draft: Draft) -> Argument:
    """A 0-d tensor with the start of a slice of the dimension drawn."""
    size = extent(draft)
    starts = draft.scene.newest_first(
        lambda t: t.dtype == torch.int64 and not t.dim() and 0 <= int(t) <= size
    )
    if starts:
        return Ref(draft.pick.one(starts))
    return draft.new_full((), draft.pick.integer(0, min(size, 3)), torch.int64)


def length_behind_tensor(draft: Draft) -> Argument:
    """A length of a slice that begins at `start`, a tensor."""
    return draft.pick.integer(0, extent(draft) - int(draft.tensor("start")))


# --- dtypes, devices and probabilities ------------------------------------------------------------


def dtype_of_other_size(draft: Draft) -> Argument:
    """A dtype to reinterpret the bytes as. Not bool: most bytes are no valid bool."""
    own = (torch.bool, draft.self.dtype)
    return draft.pick.one([dtype for dtype in draft.features.dtypes if dtype not in own])


def dtype_to_convert_to(draft: Draft) -> Argument:
    """The dtype of the first tensor, so that the conversion does nothing, or another one."""
    own = draft.self.dtype
    if draft.pick.chance(50):
        return own
    # Eager warns when a conversion discards imaginary parts.
    return draft.pick.one(
        [dtype for dtype in draft.features.dtypes if dtype.is_complex or not own.is_complex]
    )


def own_device(draft: Draft) -> Argument:
    """The device of the program."""
    return str(draft.self.device)


probability = one_of(0.5, 0.0, 0.25, 1.0)


# --- shapes ---------------------------------------------------------------------------------------


def permutation(draft: Draft) -> Argument:
    """The dimensions in another order."""
    rest = list(range(draft.self.dim()))
    order = []
    while rest:
        order.append(rest.pop(draft.pick.integer(0, len(rest) - 1)))
    return tuple(order)


def new_shape(draft: Draft) -> Argument:
    """Another shape with the same number of elements."""
    shape, count = tuple(draft.self.shape), draft.self.numel()
    # Flattened, unchanged, reversed, one more dimension, split in two, and one size inferred.
    shapes: list[tuple[int, ...]] = [(count,), shape, shape[::-1], (1, *shape), (*shape, 1)]
    shapes += [(part, count // part) for part in (2, 3, 4) if count % part == 0 and count > part]
    if count:  # eager cannot infer a size for an empty tensor
        shapes.append((-1,))
    return draft.pick.one(shapes)


def shape_of_copy(draft: Draft) -> Argument:
    """Another shape with the same number of elements, each size given."""
    shape = new_shape(draft)
    return (draft.self.numel(),) if shape == (-1,) else shape


def strides_of_copy(draft: Draft) -> Argument:
    """Strides of a dense tensor of these sizes, its dimensions in either order."""
    sizes = tuple(draft.self.shape)
    return draft.pick.one((dense_strides(sizes[::-1])[::-1], dense_strides(sizes)))


def strides_of_reshape(draft: Draft) -> Argument:
    """The strides that a view of the first tensor has with the sizes drawn."""
    sizes = [size for size in draft.elements("size") if isinstance(size, int)]
    try:
        return tuple(draft.self.view(sizes).stride())
    except RuntimeError as reason:  # no view has these sizes
        raise NoChoice from reason


def factors(draft: Draft) -> Argument:
    """Two sizes whose product is the size of the dimension drawn."""
    size = extent(draft)
    parts = [part for part in (1, 2, 3, 4) if size and size % part == 0]
    return draft.pick.one([(part, size // part) for part in parts])


def larger_shape(draft: Draft) -> Argument:
    """A larger shape to broadcast to: with a new leading dimension, or with a size 1 expanded."""
    shape = tuple(draft.self.shape)
    shapes = [(2, *shape), (3, *shape), shape]
    shapes += [(*shape[:d], 3, *shape[d + 1 :]) for d, size in enumerate(shape) if size == 1]
    return draft.pick.one(shapes)


# --- as_strided -----------------------------------------------------------------------------------
# Sizes are drawn first, then strides and offset so that the view fits in the storage: eager refuses
# others.


def strided_sizes(draft: Draft) -> Argument:
    """Sizes for `as_strided`, with no more elements than the storage has room for."""
    count = capacity(draft.self)
    if count == 0:
        raise NoChoice
    # The whole storage, one element, a row, a matrix, a 0-d view, and the sizes of the tensor.
    matrix = (min(count, 2), min(count, 3))
    sizes: list[tuple[int, ...]] = [(count,), (1,), (min(count, 3),), matrix, ()]
    sizes += [(part, count // part) for part in (2, 3) if count % part == 0]
    sizes.append(tuple(draft.self.shape))
    return draft.pick.one(sizes)


def strided_strides(draft: Draft) -> Argument:
    """Strides for the sizes drawn: dense in either order, with gaps, overlapping, or all 0."""
    sizes = draft.elements("size")
    dense, reverse = dense_strides(sizes), dense_strides(sizes[::-1])[::-1]
    gaps = tuple(2 * stride for stride in dense)
    choices = [dense, reverse, gaps, tuple(draft.self.stride())]
    if "self-overlap" in draft.features.scenarios:
        # Strides of 1 make overlapping windows, strides of 0 repeat one element.
        choices += [(1,) * len(sizes), (0,) * len(sizes)]
    available = capacity(draft.self)
    return draft.pick.one(
        [
            strides
            for strides in choices
            if len(strides) == len(sizes) and reach(sizes, strides) <= available
        ]
    )


def strided_offset(draft: Draft) -> Argument:
    """An offset for the sizes and strides drawn, within the storage."""
    # `as_strided` counts from the start of the storage, so it may reach bytes outside its argument.
    needed = reach(draft.elements("size"), draft.elements("stride"))
    return draft.pick.integer(0, min(capacity(draft.self) - needed, 3))


# --- the arguments of an op, its scatter and its in-place form ------------------------------------

SLICE: dict[str, Drawer] = {
    "dim": dimension,
    "start": start_in_dimension,
    "end": end_in_dimension,
    "step": step,
}
DIAGONAL: dict[str, Drawer] = {
    "offset": offset_of_diagonal,
    "dim1": dimension,
    "dim2": other_dimension,
}
AS_STRIDED: dict[str, Drawer] = {
    "size": strided_sizes,
    "stride": strided_strides,
    "storage_offset": strided_offset,
}
