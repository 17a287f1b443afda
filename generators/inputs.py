"""Drawing inputs: storages, and views of every layout into them; some views share a storage."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from aliasproof.generators.features import Features
from aliasproof.generators.scene import Pick, Scene
from aliasproof.ir.program import GRADIENTS, Input, Program, Storage
from aliasproof.ir.regions import dense_strides, reach

Shape = tuple[int, ...]

SMALL_SHAPES: tuple[Shape, ...] = (
    (4,),
    (2, 3),
    (3, 3),
    (2, 2),
    (4, 4),
    (),
    (3,),
    (1,),
    (2, 1, 2),
    (2, 3, 2),
    (0,),
    (2, 0),
    (8,),
    (2, 2, 1, 3),
    (1, 2, 3, 2),
    (2, 1, 2, 1, 2),
)
# Longer than a vector register of every dtype, and some are no multiple of it: some bugs are only
# in vectorised kernels.
LARGE_SHAPES: tuple[Shape, ...] = (
    (64,),
    (16, 16),
    (17,),
    (3, 33),
    (130,),
    (5, 7),
    (2, 4, 17),
    (2, 16, 3, 3),
    (1, 8, 5, 4),
    (2, 3, 2, 4, 4),
)
VECTOR_REGISTER = 64  # bytes of the longest one; CPU storages are also aligned to this


def draw_inputs(pick: Pick, features: Features) -> tuple[tuple[Storage, ...], tuple[Input, ...]]:
    """One to five inputs. Most have the same shape and dtype, so that ops can combine them."""
    drawn = _Inputs(pick, features)
    shape = draw_shape(pick, features)
    dtype = pick.one(features.dtypes)
    for _ in range(pick.integer(1, 3)):
        if drawn.views and "shared inputs" in features.scenarios and pick.chance(60):
            drawn.add_sharing()
            continue
        own_shape = draw_shape(pick, features) if pick.chance(20) else shape
        own_dtype = pick.one(features.dtypes) if pick.chance(25) else dtype
        drawn.add(own_shape, own_dtype)
    # Ops may combine a tensor with a 0-d one of another dtype.
    if pick.chance(12):
        drawn.add((), pick.one(features.dtypes))
    if "indexed" in features.groups and pick.chance(60):
        drawn.add_index(shape)
    return tuple(drawn.storages), tuple(drawn.views)


def draw_shape(pick: Pick, features: Features) -> Shape:
    """A tiny shape or, if the features allow it, one larger than a vector register."""
    if features.large and pick.chance(70):
        return pick.one(LARGE_SHAPES)
    return pick.one(SMALL_SHAPES)


@dataclass(slots=True)
class _Inputs:
    """The storages and views drawn so far."""

    pick: Pick
    features: Features
    storages: list[Storage] = field(default_factory=list)
    views: list[Input] = field(default_factory=list)

    def add(self, shape: Shape, dtype: torch.dtype) -> None:
        """Add an input with a storage of its own."""
        sizes, strides = _layout(self.pick, self.features, shape)
        offset, slack = 0, 0
        if "offset" in self.features.layouts and self.pick.chance(60):
            # Most of these offsets misalign: vectorised loads expect multiples of a register.
            offset = self.pick.one((1, 2, 3, VECTOR_REGISTER // dtype.itemsize))
        if "slack" in self.features.layouts and self.pick.chance(50):
            # Elements of the storage behind the view, which no op may access.
            slack = self.pick.one((1, 2, 5))
        self.storages.append(Storage(dtype, offset + reach(sizes, strides) + slack))
        self._add_view(len(self.storages) - 1, dtype, sizes, strides, offset)

    def add_sharing(self) -> None:
        """Add an input into a storage that another input views.

        The view is equal, adjacent, interleaved or partly overlapping; or it has other sizes or
        strides; or it is the whole storage, perhaps as another dtype.
        """
        pick, other = self.pick, self.pick.one(self.views)
        if "reinterpreted storage" in self.features.scenarios and pick.chance(40):
            # Most bytes are no valid bool, so only a storage filled with bools is read as bool.
            is_bool = self.storages[other.storage].dtype == torch.bool
            dtypes = [d for d in self.features.dtypes if d != torch.bool or is_bool]
            self._add_whole(other.storage, pick.one(dtypes))
            return
        if pick.chance(20):
            self._add_whole(other.storage, other.dtype)
            return
        gapped = [view for view in self.views if view.sizes and view.strides[-1] == 2]
        if gapped and pick.chance(40):
            # The elements in the gaps of a view.
            other = pick.one(gapped)
            self._add_lengthened(replace(other, offset=other.offset + 1))
            return
        sizes, strides = other.sizes, other.strides
        if sizes and pick.chance(40):
            # As many rows, fewer, or transposed, with equal strides or others.
            sizes = pick.one((sizes[::-1], (1, *sizes[1:]), (2, *sizes[1:])))
            transposed = dense_strides(sizes[::-1])[::-1]
            strides = pick.one((strides, dense_strides(sizes), transposed))
        span = reach(other.sizes, other.strides)
        # The same start, one element later, partly overlapping, or adjacent.
        offset = other.offset + pick.one((0, 1, max(span // 2, 1), span))
        offset = pick.one((offset, offset, 0))
        self._add_lengthened(replace(other, sizes=sizes, strides=strides, offset=offset))

    def add_index(self, shape: Shape) -> None:
        """Add a tensor of indices that are in range for a dimension of that shape.

        Ops by index need positions that are in range. Most are distinct along each dimension,
        because equal ones are undefined in most stores.
        """
        pick = self.pick
        size = min(pick.one(shape), 8) if shape and 0 not in shape else 2
        dtype = torch.int32 if pick.chance(20) else torch.int64
        shared = [
            index
            for index, storage in enumerate(self.storages)
            if storage.dtype == dtype and not storage.values and storage.length >= size
        ]
        # Inputs of this dtype are filled with 0, 1, ..., and the program may write them.
        if shared and "shared inputs" in self.features.scenarios and pick.chance(50):
            self._add_view(pick.one(shared), dtype, (size,), (1,), 0)
            return
        # One dimension for `index`; as many as the shape has for `gather` and `scatter`.
        sizes: Shape = (pick.integer(max(size // 2, 1), size),)
        if len(shape) > 1 and pick.chance(50):
            dim, other = shape.index(size) if size in shape else 0, pick.integer(0, len(shape) - 1)
            longest = [1] * len(shape)
            longest[other], longest[dim] = min(2, shape[other]), min(size, shape[dim])
            sizes = tuple(longest)
        # Distinct along each dimension that is no longer than `size`.
        start = pick.integer(0, size - 1)
        places = itertools.product(*map(range, sizes))
        values = tuple(str((start + sum(place)) % size) for place in places)
        self.storages.append(Storage(dtype, len(values), values))
        self._add_view(len(self.storages) - 1, dtype, sizes, dense_strides(sizes), 0)

    def _add_view(
        self, storage: int, dtype: torch.dtype, sizes: Shape, strides: Shape, offset: int
    ) -> None:
        name = f"x{len(self.views)}"
        self.views.append(Input(name, storage, dtype, sizes, strides, offset))

    def _add_whole(self, storage: int, dtype: torch.dtype) -> None:
        """Add a 1-d view of all of a storage."""
        length = self.storages[storage].nbytes // dtype.itemsize
        self._add_view(storage, dtype, (length,), (1,), 0)

    def _add_lengthened(self, view: Input) -> None:
        """Add a view like this one, and make its storage long enough for it."""
        needed = (view.offset + reach(view.sizes, view.strides)) * view.dtype.itemsize
        old = self.storages[view.storage]
        length = max(old.length, -(-needed // old.dtype.itemsize))  # rounded up to elements
        self.storages[view.storage] = replace(old, length=length)
        self._add_view(view.storage, view.dtype, view.sizes, view.strides, view.offset)


# --- layouts --------------------------------------------------------------------------------------


def _layout(pick: Pick, features: Features, shape: Shape) -> tuple[Shape, Shape]:
    """Sizes and strides of one of the layouts that are on and that fit the rank of the shape."""
    names = [
        name
        for name, (rank, _) in _LAYOUTS.items()
        if name in features.layouts and len(shape) >= rank
    ]
    # Few ops may write an input that overlaps itself.
    rarely = pick.chance(70)
    fitting = [
        _LAYOUTS[name][1] for name in names if not (rarely and name in ("expanded", "overlapping"))
    ]
    return pick.one(fitting or [_contiguous])(pick, shape)


def _contiguous(pick: Pick, shape: Shape) -> tuple[Shape, Shape]:
    return shape, dense_strides(shape)


def _transposed_layout(pick: Pick, shape: Shape) -> tuple[Shape, Shape]:
    """All dimensions in reverse order in memory, or the last two."""
    last_two = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return shape, _strides_in_order(shape, pick.one((tuple(range(len(shape)))[::-1], last_two)))


def _channels_last(pick: Pick, shape: Shape) -> tuple[Shape, Shape]:
    """Dimension 1 is the last in memory, as in `torch.channels_last` and `channels_last_3d`."""
    return shape, _strides_in_order(shape, (0, *range(2, len(shape)), 1))


def _gaps(pick: Pick, shape: Shape) -> tuple[Shape, Shape]:
    """Every second element, or rows with an element between them."""
    every_second = tuple(2 * stride for stride in dense_strides(shape))
    if len(shape) < 2:
        return shape, every_second
    return shape, pick.one((every_second, dense_strides((*shape[:-1], shape[-1] + 1))))


def _overlapping(pick: Pick, shape: Shape) -> tuple[Shape, Shape]:
    """Windows that move by one element, or rows that begin within the row before."""
    if len(shape) == 1:
        return shape, (0,)
    first, *rest = dense_strides(shape)
    return shape, pick.one(((1,) * len(shape), (max(first // 2, 1), *rest)))


def _strides_in_order(shape: Shape, order: Shape) -> Shape:
    """Strides without gaps for which the dimensions are in that order in memory."""
    in_memory = dense_strides(tuple(shape[dim] for dim in order))
    return tuple(in_memory[order.index(dim)] for dim in range(len(shape)))


# For each layout: the lowest rank for which it differs from contiguous, and a function for sizes
# and strides. The other names in `LAYOUTS` can be added to any of these.
_LAYOUTS: dict[str, tuple[int, Callable[[Pick, Shape], tuple[Shape, Shape]]]] = {
    "contiguous": (0, _contiguous),
    "transposed": (2, _transposed_layout),
    "channels last": (3, _channels_last),
    "gaps": (1, _gaps),
    "expanded": (0, lambda pick, shape: ((2, *shape), (0, *dense_strides(shape)))),
    "overlapping": (1, _overlapping),
}


# --- gradient regions -----------------------------------------------------------------------------
#
# How autograd sees a program: which inputs require gradients, and which calls are under `no_grad`.
#
# Only the variants with gradients depend on this, so it is drawn last.


def with_gradients(pick: Pick, scene: Scene, program: Program) -> Program:
    """The program with `no_grad` regions, and with inputs that are leaves or have no gradients."""
    storages = list(program.storages)
    dtypes = [storage.dtype for storage in storages]
    differentiable = [i for i, it in enumerate(dtypes) if it.is_floating_point or it.is_complex]
    for index in differentiable:
        if pick.chance(40):
            # At least one input requires gradients.
            kinds = GRADIENTS[1:] if index != differentiable[0] else ("leaf",)
            storages[index] = replace(storages[index], gradient=pick.one(kinds))
    leaves = {
        scene.values[view.name].untyped_storage()._cdata
        for view in program.inputs
        if storages[view.storage].gradient == "leaf"
    }
    start = pick.integer(0, len(program))
    stop = pick.integer(start, len(program)) if pick.chance(60) else start
    instructions = list(program.instructions)
    for index, instruction in enumerate(instructions):
        written = {scene.values[name].untyped_storage()._cdata for name in instruction.written}
        # Eager refuses to write a leaf while autograd records.
        if start <= index < stop or written & leaves:
            instructions[index] = replace(instruction, grad=False)
    return replace(program, storages=tuple(storages), instructions=tuple(instructions))
