"""Overlap of concrete regions: laws that a person can check, and random regions.

Random regions are compared with brute force and numpy. `tests/oracles/test_smt.py` compares
`overlap` with z3 and sets of bytes on forty thousand pairs.
"""

import itertools
import random
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from aliasproof.ir import regions
from aliasproof.ir.regions import Region, covers, overlap, overlaps_itself


def element_bytes(region: Region) -> list[int]:
    """Every byte of every element: twice, if two elements share it."""
    found: list[int] = []
    for index in itertools.product(*(range(size) for size in region.sizes)):
        start = region.start + sum(
            i * stride for i, stride in zip(index, region.strides, strict=True)
        )
        found += range(start, start + region.itemsize)
    return found


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


def random_region(draw: random.Random) -> Region:
    """0-4 dims. Half of the regions nest, some with gaps; else nearly all overlap themselves."""
    itemsize = draw.choice([1, 2, 4, 8, 16])
    sizes = tuple(draw.choice([0, *[1, 2, 3, 4, 5] * 4]) for _ in range(draw.randint(0, 4)))
    unit = draw.choice([1, itemsize])
    if draw.random() < 0.5:
        strides = [unit * draw.choice([0, 1, 2, 3, 5, 7, 12, draw.randint(-60, 60)]) for _ in sizes]
    else:
        strides, extent = [], itemsize
        for size in sizes:
            strides.append(extent + unit * draw.choice([-1, 0, 0, 0, 1, 3]))
            extent += max(size - 1, 0) * strides[-1]
    order = draw.sample(range(len(sizes)), len(sizes))
    start = draw.randint(0, 40)
    return Region(
        start, tuple(sizes[dim] for dim in order), tuple(strides[dim] for dim in order), itemsize
    )


BASE = torch.zeros(16, 16)
FLAT = BASE.view(-1)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (BASE, BASE, True),
        (BASE, torch.zeros(16, 16), False),
        (BASE[:8], BASE[8:], False),
        (BASE[:9], BASE[8:], True),
        (BASE[:, :8], BASE[:, 8:], False),
        (BASE[:, :9], BASE[:, 8:], True),
        (BASE[:, ::2], BASE[:, 1::2], False),
        (BASE[:, ::2], BASE[:, 1::3], True),
        (
            FLAT[::6],
            FLAT[1::9],
            False,
        ),  # 6i = 9j + 1 has no solution: the greatest common divisor decides
        (FLAT[::6], FLAT[7::9], False),
        (FLAT[::6], FLAT[3::9], True),
        (BASE.diagonal(), BASE[1:].diagonal(), False),
        (BASE.diagonal(), BASE.t()[3], True),
        (BASE[3:3], BASE, False),  # empty, though it points into the base
        (BASE[3, 3], BASE, True),
        (BASE[2].expand(4, 16), BASE[3], False),
        (BASE[2].expand(4, 16), BASE[:, 5], True),
        (BASE.view(torch.int16)[:, ::2], BASE.view(torch.int16)[:, 1::2], False),
        (BASE.view(torch.int16)[:, 1::2], BASE, True),
        (BASE.view(torch.uint8)[:, 3:5], BASE[:, :1], True),  # the last byte of element 0
        (BASE.view(torch.uint8)[:, 4:5], BASE[:, :1], False),
    ],
)
def test_views_overlap_where_they_share_a_byte(a, b, expected):
    assert overlap(Region.of(a), Region.of(b)) is expected
    assert overlap(Region.of(b), Region.of(a)) is expected


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (BASE, False),
        (BASE.t()[::2, 1::3], False),
        (BASE[2, 2], False),
        (BASE[2:2].unsqueeze(1).expand(0, 3, 16), False),
        (BASE[2].expand(4, 16), True),
        (BASE[2].expand(1, 16), False),
        (FLAT.unfold(0, 3, 3), False),
        (FLAT.unfold(0, 3, 2), True),
        (
            FLAT.as_strided((2, 3), (3, 2)),
            False,
        ),  # 0 2 4 and 3 5 7: does not nest, still no element twice
        (FLAT.as_strided((2, 4), (4, 2)), True),  # 0 2 4 6 and 4 6 8 10
    ],
)
def test_a_view_overlaps_itself_where_two_elements_share_a_byte(tensor, expected):
    assert overlaps_itself(Region.of(tensor)) is expected


def test_elements_can_share_a_part_of_their_bytes() -> None:
    assert overlaps_itself(Region(0, (2,), (3,), 4))
    assert not overlaps_itself(Region(0, (2,), (4,), 4))
    assert overlap(Region(0, (), (), 4), Region(3, (), (), 4))
    assert not overlap(Region(0, (), (), 4), Region(4, (), (), 4))


def test_random_regions_against_brute_force() -> None:
    draw = random.Random(1)
    count = 10_000
    with_itself = hard = 0
    for _ in range(count):
        region = random_region(draw)
        every = element_bytes(region)
        distinct = sorted(set(every))
        assert overlaps_itself(region) == (len(distinct) < len(every)), region
        assert region.numel * region.itemsize == len(every)
        assert region.interval == (
            (distinct[0], distinct[-1] + 1) if distinct else (region.start, region.start)
        )
        assert region.addresses().tolist() == distinct
        with_itself += len(distinct) < len(every)
        hard += len(distinct) == len(every) and not nests(region)
    assert 0.2 * count < with_itself < 0.8 * count
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
        expected = set(element_bytes(inner)) <= set(element_bytes(outer))
        assert covers(outer, inner) == expected, (outer, inner)
        answers.append(expected and 0 not in inner.sizes)
    assert 20 < sum(answers) < len(answers)
