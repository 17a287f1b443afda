"""Byte regions: which bytes of memory a view covers. All overlap is computed in bytes.

`overlap` and `overlaps_itself` are exact. Both reduce to one problem, a bounded subset sum.
`_reaches` solves it in closed form for the layouts that most views have (slices, transposes,
expands, windows of dense bases), and by search otherwise. The harness does so for each pair of
operands of each instruction of each program, so the code uses integers and no arrays.

`numpy.shares_memory` (`solve_diophantine` in numpy's `mem_overlap.c`) is exact as well, but it
merges equal strides and then searches depth first, so it may take exponential time unless limited.
Here strides that divide each other need no search, and the rest of a search goes to a bit set of
bounded size if one fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np
import numpy.typing as npt
import torch

from aliasproof.ir.program import Argument

# --- layouts --------------------------------------------------------------------------------------
#
# All units are elements.


def capacity(tensor: torch.Tensor) -> int:
    """The number of elements of the tensor's dtype that fit into its storage."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def dense_strides(sizes: Sequence[Argument]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides, running = [], 1
    for size in reversed(sizes):
        assert isinstance(size, int)
        strides.append(running)
        running *= max(size, 1)  # torch also gives a tensor with a size of 0 strides of 1 or more
    return tuple(reversed(strides))


def reach(sizes: Sequence[Argument], strides: Sequence[Argument]) -> int:
    """The number of elements that a view without offset spans, from its first to its last."""
    last = 0
    for size, stride in zip(sizes, strides, strict=True):
        assert isinstance(size, int)
        assert isinstance(stride, int)
        if size == 0:  # an empty view needs no storage, even with large strides
            return 0
        last += (size - 1) * stride
    return last + 1


# --- regions --------------------------------------------------------------------------------------


# Searching is faster than the bit set if a dimension leaves few choices, as for most views of one
# dense base.
_FEW_CHOICES = 16
# The largest bit set, in bits (512 KiB, some milliseconds). For larger windows the search is faster
# in practice, though its time has no bound.
_MOST_BITS = 1 << 22


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes of a strided view: start, sizes, *byte* strides, bytes per element.

    `start` is an address in bytes. Regions can be compared if their addresses belong to one address
    space: a process and device, or offsets in one storage.
    """

    start: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Region:
        """The region of a strided tensor, at its address in memory."""
        itemsize = tensor.element_size()
        strides = tuple(stride * itemsize for stride in tensor.stride())
        return cls(tensor.data_ptr(), tuple(tensor.shape), strides, itemsize)

    @property
    def numel(self) -> int:
        """The number of elements, including those that share bytes with another."""
        return prod(self.sizes)

    @property
    def interval(self) -> tuple[int, int]:
        """The lowest byte address and one past the highest; `(start, start)` if it is empty."""
        low = last = self.start
        for size, stride in zip(self.sizes, self.strides, strict=True):
            if size == 0:
                return self.start, self.start
            if stride > 0:
                last += (size - 1) * stride
            else:
                low += (size - 1) * stride
        return low, last + self.itemsize

    def addresses(self) -> npt.NDArray[np.int64]:
        """The address mask: every byte address of the region once, ascending.

        It needs memory in proportion to `numel * itemsize`, so call it only on small regions.
        """
        addresses = np.array([self.start], dtype=np.int64)
        for size, stride in zip((*self.sizes, self.itemsize), (*self.strides, 1), strict=True):
            steps = np.arange(size, dtype=np.int64) * stride
            addresses = (addresses[:, None] + steps).ravel()
        return np.unique(addresses)


def covers(outer: Region, inner: Region) -> bool:
    """True if each byte of the inner region is one of the outer region; exact.

    For an outer region with gaps, it needs as many bytes of memory as the region spans.
    """
    low, end = outer.interval
    inner_low, inner_end = inner.interval
    if inner_low == inner_end:
        return True
    if inner_low < low or inner_end > end:
        return False
    # A region as long as its elements together, which share no byte, has no gap.
    if end - low == outer.numel * outer.itemsize and not overlaps_itself(outer):
        return True
    covered = np.zeros(end - low, np.bool_)
    _entries(covered, outer, low)[...] = True
    return bool(_entries(covered, inner, low).all())


def _entries(per_byte: npt.NDArray[np.bool_], region: Region, low: int) -> npt.NDArray[np.bool_]:
    """The entries of a region's bytes, as a view; the first entry is that of address `low`."""
    shape, strides = (*region.sizes, region.itemsize), (*region.strides, 1)
    return np.ndarray(shape, np.bool_, per_byte.data, region.start - low, strides)


def overlap(a: Region, b: Region) -> bool:
    """True if two regions of one address space have a byte in common; exact."""
    # Most pairs are far apart, so the intervals decide first.
    low_a, end_a = a.interval
    low_b, end_b = b.interval
    if end_a <= low_b or end_b <= low_a or low_a == end_a or low_b == end_b:
        return False
    # The bytes at both ends of an interval belong to its region, and so does the start.
    if low_a == low_b or end_a == end_b or a.start == b.start:
        return True
    # A shared byte is low_a + p + k = end_b - itemsize_b - q + l, where p and q are sums of steps
    # (q counts backwards from the last element of b) and k, l are bytes inside an element. So the
    # regions overlap if p + q can be a value in this window:
    high = end_b - 1 - low_a
    low = high - (a.itemsize - 1) - (b.itemsize - 1)
    terms: dict[int, int] = {}
    _add_terms(terms, a)
    _add_terms(terms, b)
    return _reaches(sorted(terms.items(), reverse=True), low, high)


def overlaps_itself(a: Region) -> bool:
    """True if two different elements of a region share a byte; exact."""
    if 0 in a.sizes:
        return False
    # From the smallest stride to the largest, which decides nested layouts without a search. The
    # sign of a stride only says from which end to count.
    dims = sorted(
        (abs(stride), size) for size, stride in zip(a.sizes, a.strides, strict=True) if size > 1
    )
    # The number of bytes that an element and its neighbours along the dims so far span.
    extent = a.itemsize
    for position, (stride, size) in enumerate(dims):
        # A stride that steps over all smaller dims, as in any nested layout, shares nothing.
        if stride < extent and _returns(dims[:position], stride, size, extent, a.itemsize):
            return True
        extent += (size - 1) * stride
    return False


def _returns(
    below: list[tuple[int, int]], stride: int, size: int, extent: int, itemsize: int
) -> bool:
    """True if steps in the dims `below` can undo 1 to `size - 1` steps of `stride`.

    They undo them if the two elements end less than an element apart, and so share a byte. Of the
    dims in which their indices differ, this one has the largest stride, counted from the lower one.
    """
    # The dims below step from -reach to +reach; shift them to start from 0.
    reach = extent - itemsize
    terms: dict[int, int] = {}
    shifted = [(smaller, 2 * (count - 1)) for smaller, count in below]
    for step, most in ((stride, size - 2), *shifted):
        if step and most:
            terms[step] = terms.get(step, 0) + most
    middle = reach - stride
    return _reaches(
        sorted(terms.items(), reverse=True), middle - itemsize + 1, middle + itemsize - 1
    )


def _add_terms(terms: dict[int, int], region: Region) -> None:
    """Add the dims of a region to `terms` (stride: number of steps).

    Dims with equal strides act as one longer dim.
    """
    for size, stride in zip(region.sizes, region.strides, strict=True):
        if size > 1 and stride:
            if stride < 0:  # counted from the other end, it is positive
                stride = -stride
            terms[stride] = terms.get(stride, 0) + size - 1


def _reaches(terms: list[tuple[int, int]], low: int, high: int) -> bool:
    """True if a sum of `stride * x`, with `0 <= x <= count` per term, can be in `[low, high]`.

    The terms are `(stride, count)`; the strides are positive and distinct, the largest first. Each
    iteration keeps the answer, and either drops a term or divides by a common divisor. So layouts
    whose strides divide each other end without a search.
    """
    terms = terms[:]
    while True:
        # Steps no longer than the window sweep it without gaps, so they only widen it.
        while terms and terms[-1][0] <= high - low + 1:
            stride, count = terms.pop()
            low -= stride * count
        if high < 0 or low > high:
            return False
        if low <= 0:
            return True
        if not terms:
            return False
        divisor = gcd(*(stride for stride, _ in terms))
        if divisor == 1:
            return _search(terms, low, high)
        low, high = -(-low // divisor), high // divisor
        terms = [(stride // divisor, count) for stride, count in terms]


def _search(terms: list[tuple[int, int]], low: int, high: int) -> bool:
    """`_reaches` for `0 < low <= high` and terms that have no closed form.

    Subset sum is NP-hard in the number of dims. Among 60,000 random pairs with up to 4 dims and
    10^12 elements, the slowest took 8 seconds. The views of small tensors in programs take
    microseconds.
    """
    (stride, count), rest = terms[0], terms[1:]
    most = sum(smaller * steps for smaller, steps in rest)
    choices = range(max(0, -((most - low) // stride)), min(count, high // stride) + 1)
    # Counted from the other end, the window may need fewer bits.
    bits = min(high, most + stride * count - low)
    if len(choices) > _FEW_CHOICES and bits < _MOST_BITS:
        if bits < high:
            low, high = most + stride * count - high, bits
        return _sums_within(terms, high) >> max(low, 0) != 0
    return any(_reaches(rest, low - stride * x, high - stride * x) for x in choices)


def _sums_within(terms: Iterable[tuple[int, int]], high: int) -> int:
    """The sums from 0 to `high` that the terms can reach, as the set bits of an integer."""
    sums, within = 1, (1 << (high + 1)) - 1
    for stride, count in terms:
        left, step = min(count, high // stride), 1
        while left > 0:
            # Leaps of 1, 2, 4, ... steps, and one for the rest, together make any number of steps.
            step = min(step, left)
            sums |= sums << (stride * step)
            left, step = left - step, step * 2
        sums &= within
    return sums
