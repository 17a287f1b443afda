"""Regions: which bytes of its storage a tensor covers.

In the first chapter, two values whose `location` starts at one node may always overlap. That is
safe, but `a[:2]` cannot be written while `a[2:]` is needed, because names do not say where a tensor
is. Two views may differ in item size, so overlap is computed in bytes. A region can be written as
an integer: bit i is set if byte i belongs to the region. Then overlap is `&`, and containment is
`& ~`. A region overlaps itself if it has fewer bits than its elements have bytes. Shifting such an
integer by a stride, and OR-ing it in, adds a copy of all elements at once, and doubling the shift
needs log(size) steps per dimension.

Large regions are first divided by the greatest common divisor of their strides. If an integer of
`MOST_BITS` is still too short, or a size is a symbol, the answer is the safe one: the regions
overlap, neither contains the other, each overlaps itself.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any, TypeAlias

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

Size: TypeAlias = Any  # an int, or a SymInt

# Longest mask, in bits. A mask of this length takes half a megabyte, and `&` of two takes less than
# a millisecond.
MOST_BITS = 1 << 22


def known(condition: Any) -> bool:
    """True if a condition on sizes holds for all values of its symbols; never adds a guard."""
    # A guard would make the graph wrong for other sizes. Plain booleans are the common case.
    return condition if isinstance(condition, bool) else statically_known_true(condition)


def is_data_dependent(size: Size) -> bool:
    """True for a symbol that has no value before the run."""
    return isinstance(size, torch.SymInt) and not size.node.has_hint()


def equal(one: tuple[Size, ...], other: tuple[Size, ...]) -> bool:
    """True if two tuples of sizes are known to be equal."""
    return len(one) == len(other) and all(known(a == b) for a, b in zip(one, other, strict=True))


def same_strides(sizes: tuple[Size, ...], one: tuple[Size, ...], other: tuple[Size, ...]) -> bool:
    """True if both strides give every element the same location.

    The stride of a dimension of size one or zero is never used, so it may differ.
    """
    if any(known(size == 0) for size in sizes):  # no element, no location
        return True
    return all(
        known(size == 1) or known(a == b) for size, a, b in zip(sizes, one, other, strict=True)
    )


def contiguous_strides(sizes: Sequence[Size]) -> list[Size]:
    """The strides of a contiguous tensor."""
    strides: list[Size] = [1] if len(sizes) else []
    for size in reversed(sizes[1:]):
        # As in torch, a size of zero counts as one. A symbol is not compared: that adds a guard.
        strides.insert(0, strides[0] * (max(size, 1) if isinstance(size, int) else size))
    return strides


def is_contiguous(tensor: torch.Tensor) -> bool:
    """True if a tensor is contiguous in all strides, also those of dimensions of size one."""
    return equal(tensor.stride(), tuple(contiguous_strides(tensor.shape)))


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of one storage: start, elements per dimension, byte strides, bytes per element."""

    start: Size
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    itemsize: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Region:
        """The region of a tensor in its storage."""
        layout = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
        return cls.of_layout(*layout, tensor.element_size())

    @classmethod
    def of_layout(
        cls, sizes: Sequence[Size], strides: Sequence[Size], offset: Size, itemsize: int
    ) -> Region:
        """The region of a layout, whose strides and offset count elements."""
        # The stride of a dimension of size one is never used. Without such dimensions, equal
        # regions have equal fields more often.
        kept = [(n, s) for n, s in zip(sizes, strides, strict=True) if not known(n == 1)]
        return cls(
            offset * itemsize,
            tuple(n for n, _ in kept),
            tuple(s * itemsize for _, s in kept),
            itemsize,
        )

    @property
    def fixed(self) -> bool:
        """True if no field is a symbol."""
        return all(isinstance(field, int) for field in (self.start, *self.sizes, *self.strides))

    @property
    def end(self) -> Size:
        """One past the last byte; only for a region that is not empty."""
        # torch has no negative strides, so the last element has the largest index everywhere.
        last = sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))
        return self.start + last + self.itemsize

    @property
    def empty(self) -> bool:
        """True if the region is known to have no element."""
        return any(known(size == 0) for size in self.sizes)

    def same(self, other: Region) -> bool:
        """True if both are known to have the same elements at the same bytes."""
        return (
            self.itemsize == other.itemsize
            and known(self.start == other.start)
            and equal(self.sizes, other.sizes)
            and equal(self.strides, other.strides)
        )


def overlap(one: Region, other: Region) -> bool:
    """True if two regions of one storage share a byte, or may share one."""
    if one.empty or other.empty:
        return False
    if not (one.fixed and other.fixed):
        moved = _moved_to_zero(one, other)
        if moved is not None:
            return overlap(*moved)
        return not (known(one.end <= other.start) or known(other.end <= one.start))
    # Most pairs are disjoint as intervals already; this needs no mask.
    if one.end <= other.start or other.end <= one.start:
        return False
    masks = _masks(one, other)
    return masks is None or masks[0] & masks[1] != 0


def contains(outer: Region, inner: Region) -> bool:
    """True if every byte of `inner` is known to be a byte of `outer`."""
    if inner.empty or outer.same(inner):
        return True
    if not (outer.fixed and inner.fixed):
        moved = _moved_to_zero(outer, inner)
        if moved is not None:
            return contains(*moved)
    if outer.empty or not (known(outer.start <= inner.start) and known(inner.end <= outer.end)):
        return False
    if is_dense(outer):  # it fills its interval, and the interval of `inner` is inside
        return True
    masks = _masks(outer, inner) if outer.fixed and inner.fixed else None
    return masks is not None and masks[1] & ~masks[0] == 0


# For a view at a symbolic position of a tensor of fixed size (`cache[:, i : i + 1]`): its sizes and
# strides are fixed, and its start has known bounds.


def _moved_to_zero(one: Region, other: Region) -> tuple[Region, Region] | None:
    """Two regions moved by the same distance to fixed positions; None if that is not possible."""
    distance = other.start - one.start
    if isinstance(distance, torch.SymInt):
        distance = distance.node.maybe_as_int()
    if distance is None:
        return None
    low = min(0, distance)
    moved = replace(one, start=-low), replace(other, start=distance - low)
    return moved if all(region.fixed for region in moved) else None


def overlaps_itself(region: Region) -> bool:
    """True if two elements share a byte, or may share one."""
    # Nested strides never reach a byte twice. With symbols there is no other test.
    if region.empty or is_dense(region) or _nested(region):
        return False
    masks = _masks(region) if region.fixed else None
    # If two elements share a byte, they set one bit, so the mask has fewer bits than their bytes.
    return masks is None or masks[0].bit_count() != prod(region.sizes) * (
        region.itemsize // _unit(region)
    )


def is_dense(region: Region) -> bool:
    """True if the elements are known to fill an interval, each byte once.

    The dimensions may be in any order.
    """
    # Each stride must be exactly the number of bytes that the smaller dimensions fill.
    expected: Any = region.itemsize
    for stride, size in _ascending(region):
        if not known(stride == expected):
            return False
        expected = stride * size
    return True


def _nested(region: Region) -> bool:
    """True if each stride is at least the span that all smaller strides reach, in bytes."""
    reach: Any = region.itemsize
    for stride, size in _ascending(region):
        if not known(stride >= reach):
            return False
        reach = reach + stride * (size - 1)
    return True


def _ascending(region: Region) -> list[tuple[Size, Size]]:
    """Strides and sizes by ascending stride; symbols are ordered by their hints."""
    return sorted(
        zip(region.strides, region.sizes, strict=True),
        key=lambda dim: (_hint(dim[0]), _hint(dim[1])),
    )


def _hint(size: Size) -> int:
    """The current value of a size; a data-dependent one has none and counts as large."""
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return hint if isinstance(hint, int) else 1 << 40


def _unit(*regions: Region) -> int:
    """The largest number of bytes that divides all distances between elements of the regions."""
    # Starts are taken relative to the first one: moving all regions changes no answer.
    first = regions[0].start
    return gcd(
        *(n for region in regions for n in (region.start - first, region.itemsize, *region.strides))
    )


def _masks(*regions: Region) -> tuple[int, ...] | None:
    """The regions as masks of units, from the lowest start on; None if they would be too long."""
    # The lowest start becomes bit zero, so regions far out in a storage need no longer masks.
    unit, low = _unit(*regions), min(region.start for region in regions)
    if max(region.end for region in regions) - low > MOST_BITS * unit:
        return None
    return tuple(
        _mask(
            (region.start - low) // unit,
            region.sizes,
            tuple(stride // unit for stride in region.strides),
            region.itemsize // unit,
        )
        for region in regions
    )


# Cached, since liveness queries the same few layouts for every node.
@functools.lru_cache(maxsize=4096)
def _mask(start: int, sizes: tuple[int, ...], strides: tuple[int, ...], item: int) -> int:
    """The mask of a region; `start`, `strides` and `item` are counted in units."""
    mask = (1 << item) - 1
    for size, stride in zip(sizes, strides, strict=True):
        # `whole` has `done` copies of the smaller dimensions. Each round doubles them, except the
        # last one, which adds the missing ones.
        whole, done = mask, 1
        while done < size:
            step = min(done, size - done)
            whole |= whole << (stride * step)
            done += step
        mask = whole
    return mask << start
