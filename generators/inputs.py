"""Drawing inputs: storages, and views of every layout into them, some sharing a storage."""

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
# More than one vector register of every dtype, and not a multiple of one.
LARGE_SHAPES: tuple[tuple[int, ...], ...] = ((17,), (64,), (16, 16), (5, 7), (3, 33))


def draw_inputs(pick: Pick, features: Features) -> tuple[tuple[Storage, ...], tuple[Input, ...]]:
    """One to four inputs. Most have one shape and dtype in common, so that ops can combine them."""
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
    if "indexed" in features.groups and pick.chance(60):
        storages.append(Storage(torch.int64, 2))
        rank = pick.one((1, max(len(shape), 1)))
        sizes = (2, *(1,) * (rank - 1))
        inputs.append(
            Input(f"x{len(inputs)}", len(storages) - 1, torch.int64, sizes, dense_strides(sizes))
        )
    return tuple(storages), tuple(inputs)


def draw_shape(pick: Pick, features: Features) -> tuple[int, ...]:
    """A tiny shape, or where features allow one larger than a vector register."""
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
    layout = pick.one(features.layouts)
    sizes, strides, offset, spare = shape, dense_strides(shape), 0, 0
    if layout == "transposed":
        strides = dense_strides(shape[::-1])[::-1]
    elif layout == "gaps":
        strides = tuple(2 * each for each in strides)
        spare = 1
    elif layout == "offset":
        offset, spare = pick.integer(1, 3), 1
    elif layout == "expanded":
        sizes, strides = (2, *shape), (0, *strides)
    elif layout == "overlapping" and len(shape) >= 1:
        strides = (*strides[:-1], 1) if len(shape) > 1 else (0,)
        strides = (1,) * len(shape) if pick.chance(50) else strides
    length = offset + reach(sizes, strides) + spare
    storages.append(Storage(dtype, length))
    return Input(f"x{position}", len(storages) - 1, dtype, sizes, strides, offset)


def _sharing(pick: Pick, features: Features, storages: list[Storage], inputs: list[Input]) -> Input:
    """An input into a storage in use: the same view, a shifted one, another shape, a reversed one, another dtype."""
    other = pick.one(inputs)
    storage = storages[other.storage]
    name = f"x{len(inputs)}"
    dtype, available = other.dtype, storage.nbytes // other.dtype.itemsize
    if "reinterpreted storage" in features.scenarios and pick.chance(40):
        dtype = pick.one(
            [each for each in features.dtypes if each != torch.bool or storage.dtype == torch.bool]
        )
        available = storage.nbytes // dtype.itemsize
    if dtype != other.dtype or pick.chance(30):
        return Input(name, other.storage, dtype, (available,), (1,))
    shapes = [
        other.sizes,
        other.sizes[::-1],
        *((size, *other.sizes[1:]) for size in (1, 2) if other.sizes),
    ]
    sizes = pick.one(shapes)
    strides = pick.one((other.strides, dense_strides(sizes), dense_strides(sizes[::-1])[::-1]))
    if len(strides) != len(sizes) or reach(sizes, strides) > available:
        return Input(name, other.storage, dtype, (available,), (1,))
    return Input(
        name,
        other.storage,
        dtype,
        sizes,
        strides,
        pick.integer(0, available - reach(sizes, strides)),
    )
