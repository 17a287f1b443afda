"""Overlap of 30,000 random pairs of regions: address mask, numpy and `overlap` agree on all.

z3 agrees on a sample of 1,500.

Pairs come in chunks of 10,000, each with its own seed, so that they run on all cores.
`tests/oracles/test_smt.py` tests the deciders against brute force in plain Python, and against
planted wrong deciders.
"""

import random
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest

from aliasproof.ir.regions import Region, overlap
from aliasproof.oracles.smt import Unknown, Witness, decide

CHUNKS = 3
PAIRS = 10_000  # per chunk
BY_Z3 = 500  # of each chunk

# Where the first region of a pair begins. No region reaches the ends of memory.
MIDDLE = 1 << 17
MEMORY = np.zeros(2 * MIDDLE, dtype=np.uint8)
ITEMSIZES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class MaskedPair:
    """Two regions, and whether they share a byte according to their address masks."""

    a: Region
    b: Region
    shared: bool

    @property
    def is_hard(self) -> bool:
        """Disjoint, though one reaches into the other."""
        (low_a, end_a), (low_b, end_b) = self.a.interval, self.b.interval
        return not self.shared and max(low_a, low_b) < min(end_a, end_b)


def random_region(draw: random.Random, start: int) -> Region:
    """2 to 5 dims in any order.

    Most strides step over all smaller ones, with or without a gap; some are any number.
    """
    itemsize = draw.choice(ITEMSIZES)
    dims = draw.randint(2, 5)
    sizes = [
        0 if draw.random() < 0.02 else draw.randint(1, (6, 5, 3, 2)[dims - 2]) for _ in range(dims)
    ]
    strides, extent = [], itemsize
    for size in sizes:
        gap = draw.choice((0, 1, itemsize, 2 * itemsize, 5 * itemsize, 12 * itemsize))
        stride = extent + gap if draw.random() < 0.93 else draw.randint(-40, 40)
        strides.append(stride)
        extent += max(size - 1, 0) * abs(stride)
    order = draw.sample(range(dims), dims)
    return Region(
        start, tuple(sizes[dim] for dim in order), tuple(strides[dim] for dim in order), itemsize
    )


def random_partner(draw: random.Random, a: Region) -> Region:
    """Anywhere near, end to end, in the gaps, or the same steps from another byte on."""
    low, end = a.interval
    kind = draw.randrange(5)
    if kind == 0:
        return random_region(draw, draw.randint(low - 40, end + 40))
    if kind == 1:
        b = random_region(draw, end + draw.randint(-1, 1))
        return replace(b, start=b.start + b.start - b.interval[0])
    if kind == 2:
        return replace(
            a, start=a.start + draw.randint(0, 48), itemsize=draw.choice((a.itemsize, 1, 2))
        )
    sizes, strides = (
        draw.choice(((1, 1), (1, 2), (2, 1))),
        (draw.randint(1, 48), draw.randint(1, 48)),
    )
    return Region(draw.randint(low, end), sizes, strides, draw.choice((1, 1, 2)))


def by_mask(a: Region, b: Region) -> bool:
    """One truth value for each byte from the first to the last of both."""
    low, end = min(a.interval[0], b.interval[0]), max(a.interval[1], b.interval[1])
    one, other = (np.zeros(end - low, dtype=np.bool_) for _ in range(2))
    one[addresses(a) - low] = True
    other[addresses(b) - low] = True
    return bool((one & other).any())


def addresses(region: Region) -> npt.NDArray[np.int64]:
    found = np.arange(region.itemsize) + region.start
    for size, stride in zip(region.sizes, region.strides, strict=True):
        found = np.add.outer(np.arange(size) * stride, found)
    return found


def by_numpy(a: Region, b: Region) -> bool:
    one, other = (
        np.ndarray(each.sizes, f"V{each.itemsize}", MEMORY, each.start, each.strides)
        for each in (a, b)
    )
    return np.shares_memory(one, other)


def random_pairs(chunk: int, count: int = PAIRS) -> list[MaskedPair]:
    """The first pairs of a chunk."""
    draw, pairs = random.Random(chunk), []
    for _ in range(count):
        a = random_region(draw, MIDDLE)
        both = [a, random_partner(draw, a)]
        draw.shuffle(both)
        pairs.append(MaskedPair(both[0], both[1], by_mask(both[0], both[1])))
    return pairs


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_address_mask_numpy_and_overlap_agree(chunk: int) -> None:
    pairs = random_pairs(chunk)
    assert [
        pair
        for pair in pairs
        if {overlap(pair.a, pair.b), by_numpy(pair.a, pair.b)} != {pair.shared}
    ] == []


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_z3_agrees(chunk: int) -> None:
    answers = [(pair, decide(pair.a, pair.b)) for pair in random_pairs(chunk, BY_Z3)]
    assert [pair for pair, answer in answers if isinstance(answer, Unknown)] == []
    assert [pair for pair, answer in answers if isinstance(answer, Witness) != pair.shared] == []


def test_the_pairs_are_a_healthy_mix() -> None:
    pairs = random_pairs(0, count := 2_000)
    assert sum(pair.shared for pair in pairs) > 0.2 * count
    assert sum(pair.is_hard for pair in pairs) > 0.2 * count
    assert {len(pair.a.sizes) for pair in pairs} == {2, 3, 4, 5}
    assert {pair.a.itemsize for pair in pairs} == set(ITEMSIZES)
    assert sum(pair.a.itemsize != pair.b.itemsize for pair in pairs) > 0.2 * count
    assert sum(any(stride < 0 for stride in pair.a.strides) for pair in pairs) > 0.05 * count


def test_all_deciders_tell_an_off_by_one() -> None:
    """An element larger by a byte, or a size smaller by one, changes some answers of each."""
    pairs = random_pairs(0, 500)
    for decider in (overlap, by_numpy, by_mask):
        for wrong in (
            lambda a: replace(a, itemsize=a.itemsize + 1),
            lambda a: replace(a, sizes=(max(a.sizes[0] - 1, 0), *a.sizes[1:])),
        ):
            assert any(decider(wrong(pair.a), pair.b) != pair.shared for pair in pairs)
