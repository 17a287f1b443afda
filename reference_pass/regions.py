"""Regions: which bytes of its storage a tensor covers.

Two views of one storage may differ in item size, so every question of overlap is asked in bytes. A
region is small enough to be written down: as an integer that has bit i set if byte i belongs to it.
Then overlap is `&`, containment is `& ~`, and a region overlaps itself if it has fewer bits than
its elements have bytes. Shifting such an integer by a stride and or-ing it moves all elements at
once, and doubling the shift needs log(size) steps a dimension.

Large regions are first divided by what all their strides have in common. If an integer of
`MOST_BITS` is still too short, or a size is a symbol, the answer is the safe one: they overlap,
they are not contained, they overlap themselves.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, TypeAlias

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

Size: TypeAlias = Any  # an int, or a SymInt

MOST_BITS = 1 << 22


def known(condition: Any) -> bool:
    """True if a condition on sizes is true whatever the symbols in it are; never adds a guard."""
    return condition if isinstance(condition, bool) else statically_known_true(condition)


def equal(one: tuple[Size, ...], other: tuple[Size, ...]) -> bool:
    """True if two tuples of sizes are known to be equal."""
    return len(one) == len(other) and all(known(a == b) for a, b in zip(one, other, strict=True))


def same_strides(sizes: tuple[Size, ...], one: tuple[Size, ...], other: tuple[Size, ...]) -> bool:
    """True if two strides place the elements alike; that of a dimension of size one or less means nothing."""
    if any(known(size == 0) for size in sizes):
        return True
    return all(
        known(size == 1) or known(a == b) for size, a, b in zip(sizes, one, other, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of one storage: start, elements a dimension, byte strides, bytes an element."""

    start: Size
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    itemsize: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Region:
        """The region of a tensor in its storage."""
        item = tensor.element_size()
        kept = [
            (n, s) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if not known(n == 1)
        ]
        return cls(
            tensor.storage_offset() * item,
            tuple(n for n, _ in kept),
            tuple(s * item for _, s in kept),
            item,
        )

    @property
    def fixed(self) -> bool:
        """True if there is no symbol in it."""
        return all(isinstance(each, int) for each in (self.start, *self.sizes, *self.strides))

    @property
    def end(self) -> int:
        """One past the last byte."""
        return int(
            self.start
            + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))
            + self.itemsize
        )

    @property
    def empty(self) -> bool:
        """True if there is no element for sure."""
        return any(known(each == 0) for each in self.sizes)

    def same(self, other: Region) -> bool:
        """True if both place the same elements at the same bytes, for sure."""
        return (
            self.itemsize == other.itemsize
            and known(self.start == other.start)
            and equal(self.sizes, other.sizes)
            and equal(self.strides, other.strides)
        )


def overlap(one: Region, other: Region) -> bool:
    """True if two regions of one storage share a byte, or may."""
    if one.empty or other.empty:
        return False
    if not (one.fixed and other.fixed):
        return True
    if one.end <= other.start or other.end <= one.start:
        return False
    masks = _masks(one, other)
    return masks is None or masks[0] & masks[1] != 0


def contains(outer: Region, inner: Region) -> bool:
    """True if every byte of `inner` is one of `outer`, for sure."""
    if inner.empty or outer.same(inner):
        return True
    if (
        outer.empty
        or not (outer.fixed and inner.fixed)
        or inner.start < outer.start
        or inner.end > outer.end
    ):
        return False
    if is_dense(outer):
        return True
    masks = _masks(outer, inner)
    return masks is not None and masks[1] & ~masks[0] == 0


def overlaps_itself(region: Region) -> bool:
    """True if two elements share a byte, or may."""
    if region.empty or is_dense(region):
        return False
    if (
        _nested(region) or not region.fixed
    ):  # strides that step over all that smaller ones reach never meet again
        return not _nested(region)
    masks = _masks(region)
    return masks is None or masks[0].bit_count() != prod(region.sizes) * (
        region.itemsize // _unit(region)
    )


def is_dense(region: Region) -> bool:
    """True if the elements fill an interval, each byte once, in any order of dimensions, for sure."""
    expected: Any = region.itemsize
    for stride, size in _ascending(region):
        if not known(stride == expected):
            return False
        expected = stride * size
    return True


def _nested(region: Region) -> bool:
    """True if, with strides ascending, each steps over everything that the smaller ones reach."""
    reach: Any = region.itemsize
    for stride, size in _ascending(region):
        if not known(stride >= reach):
            return False
        reach = reach + stride * (size - 1)
    return True


def _ascending(region: Region) -> list[tuple[Size, Size]]:
    """Strides and sizes by ascending stride; symbols by the sizes that they stand for at the moment."""
    return sorted(
        zip(region.strides, region.sizes, strict=True),
        key=lambda each: (_hint(each[0]), _hint(each[1])),
    )


def _hint(size: Size) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint  # None if it depends on numbers
    return hint if isinstance(hint, int) else 1 << 40


def _unit(*regions: Region) -> int:
    first = regions[0].start
    return gcd(*(n for each in regions for n in (each.start - first, each.itemsize, *each.strides)))


def _masks(*regions: Region) -> tuple[int, ...] | None:
    unit, low = _unit(*regions), min(each.start for each in regions)
    if max(each.end for each in regions) - low > MOST_BITS * unit:
        return None
    return tuple(
        _mask(
            (r.start - low) // unit,
            r.sizes,
            tuple(s // unit for s in r.strides),
            r.itemsize // unit,
        )
        for r in regions
    )


@functools.lru_cache(maxsize=4096)
def _mask(start: int, sizes: tuple[int, ...], strides: tuple[int, ...], item: int) -> int:
    mask = (1 << item) - 1
    for size, stride in zip(sizes, strides, strict=True):
        whole, done = mask, 1
        while done < size:
            step = min(done, size - done)
            whole |= whole << (stride * step)
            done += step
        mask = whole
    return mask << start
