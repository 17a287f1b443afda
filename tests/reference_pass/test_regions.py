"""Regions of the reference pass, against the sets of bytes that they stand for."""

from __future__ import annotations

import random

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from reference_pass.regions import Region, contains, is_dense, overlap, overlaps_itself


def bytes_of(region: Region) -> list[int]:
    found = [region.start]
    for size, stride in zip(region.sizes, region.strides, strict=True):
        found = [each + index * stride for each in found for index in range(size)]
    return [each + byte for each in found for byte in range(region.itemsize)]


def drawn(pick: random.Random) -> Region:
    rank, item = pick.randint(0, 3), pick.choice((1, 2, 4, 8))
    sizes = tuple(pick.choice((0, 1, 2, 3, 5)) if pick.random() < 0.1 else pick.randint(2, 4) for _ in range(rank))
    return Region(pick.randint(0, 12) * item, sizes, tuple(pick.randint(0, 6) * item for _ in range(rank)), item)


@pytest.mark.parametrize("seed", range(20))
def test_they_agree_with_sets_of_bytes(seed):
    pick = random.Random(seed)
    for _ in range(250):
        one, other = drawn(pick), drawn(pick)
        ours, theirs = bytes_of(one), bytes_of(other)
        assert overlap(one, other) == bool(set(ours) & set(theirs))
        assert contains(one, other) == (set(theirs) <= set(ours))
        assert overlaps_itself(one) == (len(set(ours)) < len(ours))
        if is_dense(one) and ours:
            assert sorted(ours) == list(range(min(ours), min(ours) + len(ours)))


def test_a_region_too_large_to_write_down_is_decided_safely():
    rows = Region(0, (1 << 20, 3), ((1 << 12) + 4, 4), 4)
    columns = Region(8, (1 << 20,), ((1 << 12) + 4,), 4)
    apart = Region(12, (1 << 20,), ((1 << 12) + 4,), 4)
    assert overlap(rows, columns)
    assert overlap(rows, apart), "it shares no byte, which is not known without looking at all of them"
    assert not contains(rows, columns)
    assert not overlap(rows, Region(rows.end, (4,), (4,), 4))


def test_what_is_touching_does_not_overlap():
    assert not overlap(Region(0, (4,), (4,), 4), Region(16, (4,), (4,), 4))
    assert overlap(Region(0, (4,), (4,), 4), Region(15, (1,), (1,), 1))


def test_symbolic_sizes_are_decided_for_all_of_them():
    mode = FakeTensorMode(shape_env=ShapeEnv())
    tensor = mode.from_tensor(torch.ones(6, 4), static_shapes=False)
    whole = Region.of(tensor)
    assert is_dense(whole)
    assert not overlaps_itself(whole)
    assert not overlaps_itself(Region.of(tensor.t()))
    assert overlap(whole, Region.of(tensor[1:]))
    assert overlaps_itself(Region.of(tensor.expand(2, -1, -1)))
    assert whole.same(Region.of(tensor.view(tensor.shape)))
