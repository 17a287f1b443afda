"""Regions that are drawn, and their bytes one by one."""

import random

import numpy as np

from aliasproof.ir.regions import Region

MIDDLE = 1 << 17  # where a region begins, or a little later
ITEMSIZES = (1, 2, 4, 8, 16)


def bytes_of(region: Region) -> list[int]:
    """Every byte of every element: twice, if two elements share it."""
    found = np.arange(region.start, region.start + region.itemsize)
    for size, stride in zip(region.sizes, region.strides, strict=True):
        found = np.add.outer(np.arange(size) * stride, found)
    return list(found.ravel().tolist())


def random_region(draw: random.Random) -> Region:
    """0-5 dims in any order.

    A stride usually exceeds the extent of the smaller ones, with or without a gap. Sometimes it is
    any number of bytes.
    """
    itemsize, dims = draw.choice(ITEMSIZES), draw.randint(0, 5)
    most = (5, 5, 6, 5, 3, 2)[dims]
    sizes = [draw.choice([0, *[draw.randint(1, most)] * 40]) for _ in range(dims)]
    strides, extent = [], itemsize
    for size in sizes:
        gap = itemsize * draw.choice([0, 1, 2, 4, 12]) if draw.random() < 0.8 else 1
        strides.append(draw.choice([*[extent + gap] * 10, 0, draw.randint(-40, 40)]))
        extent += max(size - 1, 0) * abs(strides[-1])
    order = draw.sample(range(dims), dims)
    start = MIDDLE + draw.randint(0, 100)
    return Region(
        start, tuple(sizes[dim] for dim in order), tuple(strides[dim] for dim in order), itemsize
    )
