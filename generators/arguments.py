"""How each argument of an op is drawn: by its name or type in the schema, unless the op's line says otherwise.

Every function here takes the `Draft` of the call so far and gives one argument, or raises
`NoChoice`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from generators.features import Features
from generators.scene import NoChoice, Pick, Scene
from programs.layouts import capacity, dense_strides, reach
from programs.program import Argument, Ref, names_in
from programs.schemas import resolve


@dataclass(slots=True)
class Draft:
    """A call being drawn: the scene, the arguments drawn so far by name, and what programs may contain."""

    pick: Pick
    scene: Scene
    features: Features
    drawn: dict[str, Argument] = field(default_factory=dict)

    @property
    def self_name(self) -> str:
        """The name of the first tensor argument."""
        if isinstance(own := self.drawn.get("self"), Ref):
            return own.name
        name = next(names_in(tuple(self.drawn.values())), None)
        if name is None:
            raise NoChoice
        return name

    @property
    def self(self) -> torch.Tensor:
        """The first tensor argument."""
        return self.scene.values[self.self_name]

    def integer(self, name: str) -> int:
        """An integer argument drawn before."""
        value = self.drawn[name]
        assert isinstance(value, int)
        return value


Drawer: TypeAlias = Callable[[Draft], Argument]


# Numbers and dimensions. --------------------------------------------------------------------------


def number(draft: Draft) -> Argument:
    """A small integer, as a Python number that the dtype of the first tensor can hold."""
    if draft.self.dtype == torch.bool:
        return draft.pick.chance(50)
    return draft.pick.one([2, 3, 0, 1, -1, 5])


def dimension(draft: Draft) -> Argument:
    """A dimension of the first tensor, counted from the front or the back."""
    rank = draft.self.dim()
    if rank == 0:
        raise NoChoice
    chosen: int = draft.pick.one([*range(rank), *range(-1, -rank - 1, -1)])
    return chosen


def dimension_to_insert(draft: Draft) -> Argument:
    """A place for a new dimension."""
    return draft.pick.integer(0, draft.self.dim())


def other_dimension(draft: Draft) -> Argument:
    """A dimension other than `dim1`, for a diagonal."""
    rank = draft.self.dim()
    return draft.pick.one([each for each in range(rank) if each != draft.integer("dim1") % rank])


def extent(draft: Draft) -> int:
    """The size of the dimension drawn as `dim`, or as `dimension`."""
    dim = draft.drawn.get("dim", draft.drawn.get("dimension"))
    assert isinstance(dim, int)
    return draft.self.shape[dim]


def index_in_dimension(draft: Draft) -> Argument:
    """An index into the dimension drawn, from the front or the back."""
    size = extent(draft)
    if size == 0:
        raise NoChoice
    return draft.pick.one((0, size - 1, size // 2, -1))


def start_in_dimension(draft: Draft) -> Argument:
    """A first index into the dimension drawn."""
    return draft.pick.integer(0, min(extent(draft), 3))


def end_in_dimension(draft: Draft) -> Argument:
    """An end for the slice: past all, or near the start."""
    start = draft.integer("start")
    return draft.pick.one((2**63 - 1, start + 1, start + 2, max(extent(draft) - 1, start)))


def step(draft: Draft) -> Argument:
    """A step of 1, or one that leaves gaps."""
    return draft.pick.one((1, 2, 3))


def length_in_dimension(draft: Draft) -> Argument:
    """A length that fits behind `start`."""
    return draft.pick.integer(0, extent(draft) - draft.integer("start"))


def window(draft: Draft) -> Argument:
    """The size of a window that slides over the dimension drawn."""
    return draft.pick.integer(1, min(extent(draft), 3))


def piece(draft: Draft) -> Argument:
    """A size for the pieces of a split that gives few of them."""
    size = extent(draft)
    return draft.pick.integer(max(1, (size + 3) // 4), max(1, size))


def pieces(draft: Draft) -> Argument:
    """A number of chunks."""
    return draft.pick.integer(1, 3)


def offset_of_diagonal(draft: Draft) -> Argument:
    """The main diagonal or one beside it."""
    return draft.pick.one((0, 1, -1))


# Shapes. ------------------------------------------------------------------------------------------


def permutation(draft: Draft) -> Argument:
    """The dimensions in another order."""
    rest = list(range(draft.self.dim()))
    order = []
    while rest:
        order.append(rest.pop(draft.pick.integer(0, len(rest) - 1)))
    return tuple(order)


def reshaped(draft: Draft) -> Argument:
    """Another shape with as many elements."""
    shape, count = tuple(draft.self.shape), draft.self.numel()
    shapes: list[tuple[int, ...]] = [(count,), shape, shape[::-1], (1, *shape), (*shape, 1)]
    shapes += [(part, count // part) for part in (2, 3, 4) if count % part == 0 and count > part]
    if count:
        shapes.append((-1,))
    return draft.pick.one(shapes)


def factors(draft: Draft) -> Argument:
    """Two sizes whose product is the size of the dimension drawn."""
    size = extent(draft)
    return draft.pick.one(
        [(part, size // part) for part in (1, 2, 3, 4) if size and size % part == 0]
    )


def expanded(draft: Draft) -> Argument:
    """A larger shape to broadcast to: a new leading dimension, or a dimension of size one made longer."""
    shape = tuple(draft.self.shape)
    shapes = [(2, *shape), (3, *shape), shape]
    shapes += [(*shape[:d], 3, *shape[d + 1 :]) for d, size in enumerate(shape) if size == 1]
    return draft.pick.one(shapes)


def strided_sizes(draft: Draft) -> Argument:
    """Sizes for `as_strided`; strides and offset are drawn to fit the storage behind."""
    count = capacity(draft.self)
    if count == 0:
        raise NoChoice
    sizes: list[tuple[int, ...]] = [
        (count,),
        (1,),
        (min(count, 3),),
        (min(count, 2), min(count, 3)),
        (),
    ]
    sizes += [(part, count // part) for part in (2, 3) if count % part == 0]
    sizes.append(tuple(draft.self.shape))
    return draft.pick.one(sizes)


def strided_strides(draft: Draft) -> Argument:
    """Strides for the sizes drawn: dense in either order, with gaps, overlapping or standing still."""
    sizes = draft.drawn["size"]
    assert isinstance(sizes, tuple)
    dense, reverse = dense_strides(sizes), dense_strides(sizes[::-1])[::-1]
    choices = [dense, reverse, tuple(2 * each for each in dense), tuple(draft.self.stride())]
    if "self-overlap" in draft.features.scenarios:
        choices += [(1,) * len(sizes), (0,) * len(sizes)]
    available = capacity(draft.self)
    fitting = [
        each for each in choices if len(each) == len(sizes) and reach(sizes, each) <= available
    ]
    return draft.pick.one(fitting)


def strided_offset(draft: Draft) -> Argument:
    """An offset for the sizes and strides drawn, within the storage."""
    sizes, strides = draft.drawn["size"], draft.drawn["stride"]
    assert isinstance(sizes, tuple)
    assert isinstance(strides, tuple)
    return draft.pick.integer(0, min(capacity(draft.self) - reach(sizes, strides), 3))


# Tensors. -----------------------------------------------------------------------------------------


def tensor_like(draft: Draft, accepts: Callable[[torch.Tensor], bool]) -> str:
    """A value that is accepted: often one that aliases the first tensor, if that scenario is on; else a recent one."""
    fitting = draft.scene.newest_first(accepts)
    if "aliased operands" in draft.features.scenarios and draft.pick.chance(30):
        near = set(draft.scene.aliases(draft.self_name)) | {draft.self_name}
        fitting = [each for each in fitting if each in near] or fitting
    return draft.pick.one(fitting)


def operand(draft: Draft) -> Argument:
    """A tensor of the first tensor's dtype that broadcasts to its shape."""
    shape, dtype = draft.self.shape, draft.self.dtype
    return Ref(
        tensor_like(draft, lambda each: each.dtype == dtype and broadcasts(each.shape, shape))
    )


def partner(draft: Draft) -> Argument:
    """A tensor of the first tensor's dtype to combine with; sometimes the result has a shape that neither has."""
    if not draft.pick.chance(20):
        return operand(draft)
    shape, dtype = draft.self.shape, draft.self.dtype
    return Ref(tensor_like(draft, lambda each: each.dtype == dtype and combines(each.shape, shape)))


def source(draft: Draft) -> Argument:
    """Something to copy from: a tensor that broadcasts to the first one's shape; complex numbers only into complex."""
    shape, complex_self = draft.self.shape, draft.self.is_complex()
    return Ref(
        tensor_like(
            draft, lambda t: broadcasts(t.shape, shape) and (complex_self or not t.is_complex())
        )
    )


def scalar_tensor(draft: Draft) -> Argument:
    """A 0-d tensor of the first tensor's dtype."""
    dtype = draft.self.dtype
    return Ref(tensor_like(draft, lambda each: each.dim() == 0 and each.dtype == dtype))


def mask(draft: Draft) -> Argument:
    """A bool tensor that broadcasts to the first tensor's shape; compared into being if there is none."""
    shape = draft.self.shape
    masks = draft.scene.newest_first(
        lambda each: each.dtype == torch.bool and broadcasts(each.shape, shape)
    )
    if masks:
        return Ref(draft.pick.one(masks))
    compare = "aten.eq.Scalar" if draft.self.is_complex() else "aten.gt.Scalar"
    return Ref(draft.scene.call(compare, Ref(draft.self_name), 2)[0])


def output_buffer(draft: Draft) -> Argument:
    """A tensor of the first tensor's dtype and of the shape that the operands broadcast to, to be overwritten."""
    operands = [
        draft.scene.values[each.name] for each in draft.drawn.values() if isinstance(each, Ref)
    ]
    shape = torch.broadcast_shapes(*(each.shape for each in operands))
    dtype = draft.self.dtype
    return Ref(tensor_like(draft, lambda each: each.dtype == dtype and each.shape == shape))


def bool_buffer(draft: Draft) -> Argument:
    """A bool tensor of the first tensor's shape, to be overwritten."""
    shape = draft.self.shape
    return Ref(tensor_like(draft, lambda each: each.dtype == torch.bool and each.shape == shape))


def positions(draft: Draft) -> Argument:
    """A vector of indices within the dimension drawn."""
    size = extent(draft)
    return Ref(
        draft.pick.one(
            draft.scene.newest_first(lambda each: _indexes(each, size) and each.dim() == 1)
        )
    )


def positions_like(draft: Draft) -> Argument:
    """Indices within the dimension drawn, with as many dimensions as the first tensor and no longer than it."""
    size, rank = extent(draft), draft.self.dim()

    def fits(each: torch.Tensor) -> bool:
        smaller = each.dim() == rank and all(
            a <= b for a, b in zip(each.shape, draft.self.shape, strict=True)
        )
        return smaller and _indexes(each, size)

    return Ref(draft.pick.one(draft.scene.newest_first(fits)))


def index_list(draft: Draft) -> Argument:
    """A list of index tensors for the leading dimension of the first tensor: a mask, or positions."""
    if draft.self.dim() == 0:
        raise NoChoice
    size, shape = draft.self.shape[0], draft.self.shape
    fitting = draft.scene.newest_first(
        lambda t: (t.dtype == torch.bool and t.shape == shape) or _indexes(t, size)
    )
    return (Ref(draft.pick.one(fitting)),)


def _indexes(tensor: torch.Tensor, size: int) -> bool:
    if tensor.dtype != torch.int64 or tensor.numel() == 0 or tensor.numel() > 64:
        return False
    return int(tensor.min()) >= 0 and int(tensor.max()) < size


def values_to_put(draft: Draft) -> Argument:
    """A tensor that broadcasts to what the drawn indices select."""
    indices = draft.drawn["indices"]
    assert isinstance(indices, tuple)
    assert isinstance(indices[0], Ref)
    try:
        chosen = draft.self[draft.scene.values[indices[0].name]]
    except IndexError as reason:
        raise NoChoice from reason
    dtype = draft.self.dtype
    return Ref(
        tensor_like(
            draft, lambda each: each.dtype == dtype and broadcasts(each.shape, chosen.shape)
        )
    )


def rows_to_add(draft: Draft) -> Argument:
    """A tensor like the first one, but as long as the index in the dimension drawn."""
    index, dim = draft.drawn["index"], draft.integer("dim")
    assert isinstance(index, Ref)
    shape = list(draft.self.shape)
    shape[dim] = draft.scene.values[index.name].numel()
    dtype = draft.self.dtype
    return Ref(tensor_like(draft, lambda each: each.dtype == dtype and list(each.shape) == shape))


def at_least_index(draft: Draft) -> Argument:
    """A tensor of the first one's dtype that is at least as long as the index in every dimension."""
    index, dtype = draft.drawn["index"], draft.self.dtype
    assert isinstance(index, Ref)
    shape = draft.scene.values[index.name].shape

    def fits(each: torch.Tensor) -> bool:
        return (
            each.dtype == dtype
            and len(each.shape) == len(shape)
            and all(map(int.__ge__, each.shape, shape))
        )

    return Ref(tensor_like(draft, fits))


def source_for(op_view: str, *arguments: str) -> Drawer:
    """A source for a scatter: a tensor of the shape that the view with the arguments drawn so far would have."""

    def drawer(draft: Draft) -> Argument:
        args = [draft.drawn[each] for each in arguments]
        try:
            region = resolve(op_view)(draft.self, *args)
        except (RuntimeError, IndexError) as reason:
            raise NoChoice from reason
        shape, dtype = region.shape, region.dtype
        fitting = draft.scene.newest_first(lambda each: each.dtype == dtype and each.shape == shape)
        if not fitting or draft.pick.chance(40):
            view = draft.scene.call(op_view, Ref(draft.self_name), *args)[0]
            return Ref(draft.scene.call("aten.neg.default", Ref(view))[0])
        return Ref(draft.pick.one(fitting))

    return drawer


def matrix_for(draft: Draft) -> Argument:
    """A tensor that the first one can be multiplied by as a matrix."""
    size, dtype = draft.self.shape[-1] if draft.self.dim() else -1, draft.self.dtype
    return Ref(
        tensor_like(draft, lambda t: t.dim() in (1, 2) and t.shape[0] == size and t.dtype == dtype)
    )


def tensor_list(draft: Draft) -> Argument:
    """Two or three tensors of one dtype and shape (the first drawn here becomes the first tensor)."""
    first = draft.pick.one(draft.scene.newest_first(lambda each: each.dim() > 0))
    shape, dtype = draft.scene.values[first].shape, draft.scene.values[first].dtype
    like = draft.scene.newest_first(lambda each: each.shape == shape and each.dtype == dtype)
    return tuple(
        Ref(each)
        for each in (first, *(draft.pick.one(like) for _ in range(draft.pick.integer(1, 2))))
    )


def dtype_of_other_size(draft: Draft) -> Argument:
    """A dtype to read the same bytes as. Bool is left out: most bytes are no bool."""
    return draft.pick.one(
        [each for each in draft.features.dtypes if each not in (torch.bool, draft.self.dtype)]
    )


def broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    """True if a tensor of that shape can be expanded to the other."""
    padded = (1,) * (len(to) - len(shape)) + tuple(shape)
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(padded, to, strict=True))


def combines(one: torch.Size, other: torch.Size) -> bool:
    """True if tensors of these shapes broadcast together."""
    return all(
        1 in pair or pair[0] == pair[1]
        for pair in zip(reversed(one), reversed(other), strict=False)
    )


BY_NAME: dict[str, Drawer] = {
    "dim": dimension,
    "dim0": dimension,
    "dim1": dimension,
    "dimension": dimension,
    "dims": permutation,
    "mask": mask,
    "src": source,
    "out": output_buffer,
    "weight": number,
    "condition": mask,
    "index": positions,
    "indices": index_list,
}

BY_TYPE: dict[str, Drawer] = {
    "Tensor": operand,
    "number": number,
    "List[Tensor]": tensor_list,
}
