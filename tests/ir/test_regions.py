"""Random regions are compared with brute force and numpy.

`tests/oracles/test_smt.py` compares `overlap` with z3 and sets of bytes on forty thousand pairs.
"""

import random
from typing import Any, ClassVar

import numpy as np
import pytest

from aliasproof.ir import regions
from aliasproof.ir.regions import Region, covers, overlap, overlaps_itself
from tests.ir.random_regions import bytes_of, random_region


def nests(region: Region) -> bool:
    """Whether each stride exceeds the extent of smaller ones, so that no elements share bytes."""
    extent = region.itemsize
    for stride, size in sorted(
        (abs(stride), size) for size, stride in zip(region.sizes, region.strides, strict=True)
    ):
        if size > 1 and stride < extent:
            return False
        extent += (size - 1) * stride
    return True


def test_random_regions_against_brute_force() -> None:
    draw = random.Random(1)
    count = 10_000
    with_itself = hard = 0
    for _ in range(count):
        region = random_region(draw)
        every = bytes_of(region)
        distinct = sorted(set(every))
        assert overlaps_itself(region) == (len(distinct) < len(every)), region
        assert region.numel * region.itemsize == len(every)
        assert region.interval == (
            (distinct[0], distinct[-1] + 1) if distinct else (region.start, region.start)
        )
        assert region.addresses().tolist() == distinct
        with_itself += len(distinct) < len(every)
        hard += len(distinct) == len(every) and not nests(region)
    assert 0.1 * count < with_itself < 0.8 * count
    assert hard > 0.01 * count  # disjoint elements, though the strides do not show it


def large_region(draw: random.Random) -> Region:
    itemsize = draw.choice([1, 2, 4, 8])
    dims = range(draw.randint(1, 4))
    sizes = tuple(draw.randint(1, 10 ** draw.randint(1, 3)) for _ in dims)
    strides = tuple(itemsize * draw.randint(0, 10 ** draw.randint(0, 5)) for _ in dims)
    return Region(draw.randint(0, 10 ** draw.randint(5, 7)), sizes, strides, itemsize)


def numpy_array(region: Region) -> np.ndarray:
    """An array with the region's layout at an unused address: numpy never reads its memory."""

    class Somewhere:
        __array_interface__: ClassVar = {
            "version": 3,
            "shape": region.sizes,
            "strides": region.strides,
            "typestr": f"|V{region.itemsize}",
            "data": (region.start + (1 << 40), False),
        }

    return np.asarray(Somewhere())


# Three ways to search: the default, with bit sets from the start, without bit sets.
@pytest.mark.parametrize(("few_choices", "most_bits"), [(16, 1 << 22), (-1, 1 << 60), (16, 0)])
def test_large_regions_against_numpy(monkeypatch, few_choices, most_bits):
    monkeypatch.setattr(regions, "_FEW_CHOICES", few_choices)
    monkeypatch.setattr(regions, "_MOST_BITS", most_bits)
    draw = random.Random(3)
    overlapping = disjoint = 0
    while overlapping + disjoint < 1_000:
        a, b = large_region(draw), large_region(draw)
        try:
            # The type of `max_work` names only its two special values.
            work: Any = 10_000
            expected = np.shares_memory(numpy_array(a), numpy_array(b), max_work=work)
        except np.exceptions.TooHardError:
            continue
        assert overlap(a, b) == expected, (a, b)
        overlapping += expected
        disjoint += not expected
    assert min(overlapping, disjoint) > 200, (overlapping, disjoint)


def test_large_regions_of_one_base_take_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_search", lambda *_: pytest.fail("searched"))
    rows, columns = 1 << 20, 1 << 16
    left = Region(0, (rows, columns // 2), (4 * columns, 4), 4)
    assert not overlap(left, Region(2 * columns, (rows, columns // 2), (4 * columns, 4), 4))
    assert overlap(left, Region(2 * columns - 4, (rows, columns // 2), (4 * columns, 4), 4))
    assert not overlap(
        Region(0, (rows, columns // 2), (4 * columns, 8), 4),
        Region(4, (rows * columns // 2,), (8,), 4),
    )
    assert not overlaps_itself(left)


@pytest.mark.parametrize(("sizes", "strides"), [((2, 2), (4,)), ((2,), (8, 4))])
def test_sizes_and_strides_are_of_one_length(sizes, strides):
    region = Region(0, sizes, strides, 4)
    other = Region(2, (), (), 4)
    for question in (
        region.addresses,
        lambda: overlaps_itself(region),
        lambda: overlap(region, other),
    ):
        with pytest.raises(ValueError, match="zip"):
            question()


def test_covers_agrees_with_the_sets_of_bytes() -> None:
    draw = random.Random(0)
    answers = []
    for _ in range(2000):
        outer, inner = random_region(draw), random_region(draw)
        expected = set(bytes_of(inner)) <= set(bytes_of(outer))
        assert covers(outer, inner) == expected, (outer, inner)
        answers.append(expected and 0 not in inner.sizes)
    assert 20 < sum(answers) < len(answers)
