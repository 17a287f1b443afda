"""`Location`: the storage of a tensor and its layout in it, as numbers that outlive the tensor."""

from __future__ import annotations

from typing import NamedTuple

import torch

from aliasproof.ir.regions import Region, overlap


class Location(NamedTuple):
    """The number of a tensor's storage, and its metadata. `offset` and `strides` are in elements.

    Two locations can be compared if their storages are numbered alike.
    """

    storage: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    conj: bool
    neg: bool

    @property
    def region(self) -> Region:
        """The bytes that the tensor covers, counted from the start of its storage."""
        itemsize = self.dtype.itemsize
        # Overlap is asked in bytes: views of one storage may differ in item size.
        strides = tuple(stride * itemsize for stride in self.strides)
        return Region(self.offset * itemsize, tuple(self.sizes), strides, itemsize)

    def overlaps(self, other: Location) -> bool:
        """Whether the two have a byte in common."""
        return self.storage == other.storage and overlap(self.region, other.region)

    def same_elements(self, other: Location) -> bool:
        """Whether each element of the two, after broadcasting, is the same bytes."""
        return self.storage == other.storage and self._steps() == other._steps()

    def same_layout(self, other: Location) -> bool:
        """Whether the two differ in nothing except their storage."""
        return self[1:] == other[1:]

    def _steps(self) -> tuple[object, ...]:
        """The start and the dims in bytes.

        Broadcasting aligns dims at the last one, so they are counted from there. Dims of size 1 are
        left out: their strides are never used.
        """
        itemsize = self.dtype.itemsize
        pairs = zip(reversed(self.sizes), reversed(self.strides), strict=True)
        # Strides in bytes: two views of different item size have no element in common.
        dims = tuple(
            (dim, size, stride * itemsize) for dim, (size, stride) in enumerate(pairs) if size != 1
        )
        return self.offset * itemsize, itemsize, dims


def location_of(tensor: torch.Tensor, storage: int) -> Location:
    """The location of a strided tensor in the storage of that number."""
    return Location(
        storage,
        int(tensor.storage_offset()),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )
