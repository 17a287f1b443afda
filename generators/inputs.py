"""Drawing inputs: storages, and views of every layout into them; some views share a storage."""

from __future__ import annotations

import torch

from generators.features import Features
from generators.scene import Pick
from programs.layouts import dense_strides, reach
from programs.program import Input, Storage

SMALL_SHAPES: tuple[tuple[int, ...], ...] = (
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
)
# Longer than a vector register of every dtype, some no multiple of one: some mistakes are in
# vectorised kernels only.
LARGE_SHAPES: tuple[tuple[int, ...], ...] = ((17,), (64,), (16, 16), (5, 7), (3, 33))


def draw_inputs(pick: Pick, features: Features) -> tuple[tuple[Storage, ...], tuple[Input, ...]]:
    """One to four inputs. Most have the same shape and dtype, so that ops can combine them."""
    storages: list[Storage] = []
    inputs: list[Input] = []
    shape = draw_shape(pick, features)
    dtype = pick.one(features.dtypes)
    for _ in range(pick.integer(1, 3)):
        if inputs and "shared inputs" in features.scenarios and pick.chance(60):
            inputs.append(_sharing(pick, features, storages, inputs))
            continue
        own_shape = draw_shape(pick, features) if pick.chance(25) else shape
        own_dtype = pick.one(features.dtypes) if pick.chance(25) else dtype
        inputs.append(_fresh(pick, features, storages, len(inputs), own_shape, own_dtype))
    # Ops by index need positions that are in range. An int64 storage of length 2 contains 0 and 1.
    if "indexed" in features.groups and pick.chance(60):
        storages.append(Storage(torch.int64, 2))
        rank = pick.one((1, max(len(shape), 1)))
        sizes = (2, *(1,) * (rank - 1))
        inputs.append(
            Input(f"x{len(inputs)}", len(storages) - 1, torch.int64, sizes, dense_strides(sizes))
        )
    return tuple(storages), tuple(inputs)


def draw_shape(pick: Pick, features: Features) -> tuple[int, ...]:
    """A tiny shape or, if the features allow it, one larger than a vector register."""
    if features.large and pick.chance(40):
        return pick.one(LARGE_SHAPES)
    return pick.one(SMALL_SHAPES)


def _fresh(
    pick: Pick,
    features: Features,
    storages: list[Storage],
    position: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> Input:
    """An input with a storage of its own, which is added to `storages`."""
    layout = pick.one(features.layouts)
    sizes, strides, offset = shape, dense_strides(shape), 0
    spare = 0  # elements of the storage behind the view, which no op may touch
    if layout == "transposed":
        strides = dense_strides(shape[::-1])[::-1]
    elif layout == "gaps":
        strides, spare = tuple(2 * stride for stride in strides), 1
    elif layout == "offset":
        offset, spare = pick.integer(1, 3), 1
    elif layout == "expanded":
        sizes, strides = (2, *shape), (0, *strides)
    elif layout == "overlapping" and len(shape) >= 1:
        # Either the last dimension overlaps the others, or all of them overlap each other.
        strides = (*strides[:-1], 1) if len(shape) > 1 else (0,)
        strides = (1,) * len(shape) if pick.chance(50) else strides
    length = offset + reach(sizes, strides) + spare
    storages.append(Storage(dtype, length))
    return Input(f"x{position}", len(storages) - 1, dtype, sizes, strides, offset)


def _sharing(pick: Pick, features: Features, storages: list[Storage], inputs: list[Input]) -> Input:
    """An input into a storage that another input views.

    It is the same view, one with other sizes, strides or offset, or the whole storage, perhaps as
    another dtype.
    """
    other = pick.one(inputs)
    storage = storages[other.storage]
    name = f"x{len(inputs)}"
    dtype, available = other.dtype, storage.nbytes // other.dtype.itemsize
    if "reinterpreted storage" in features.scenarios and pick.chance(40):
        # Most bytes are not a bool, so only a storage filled with bools is read as one.
        dtypes = [d for d in features.dtypes if d != torch.bool or storage.dtype == torch.bool]
        dtype = pick.one(dtypes)
        available = storage.nbytes // dtype.itemsize
    flattened = Input(name, other.storage, dtype, (available,), (1,))
    if dtype != other.dtype or pick.chance(30):
        return flattened
    first_changed = [(size, *other.sizes[1:]) for size in (1, 2) if other.sizes]
    sizes = pick.one([other.sizes, other.sizes[::-1], *first_changed])
    strides = pick.one((other.strides, dense_strides(sizes), dense_strides(sizes[::-1])[::-1]))
    if len(strides) != len(sizes) or reach(sizes, strides) > available:
        return flattened
    offset = pick.integer(0, available - reach(sizes, strides))
    return Input(name, other.storage, dtype, sizes, strides, offset)
