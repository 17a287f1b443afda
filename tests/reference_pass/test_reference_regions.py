"""Regions of the reference pass, compared with the sets of their bytes."""

import random

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aliasproof.reference_pass.calls.regions import (
    Region,
    contains,
    is_dense,
    overlap,
    overlaps_itself,
    same_strides,
)


def bytes_of(region: Region) -> list[int]:
    found = [region.start]
    for size, stride in zip(region.sizes, region.strides, strict=True):
        found = [each + index * stride for each in found for index in range(size)]
    return [each + byte for each in found for byte in range(region.itemsize)]


def drawn(pick: random.Random) -> Region:
    rank, item = pick.randint(0, 3), pick.choice((1, 2, 4, 8))
    sizes = tuple(
        pick.choice((0, 1, 2, 3, 5)) if pick.random() < 0.1 else pick.randint(2, 4)
        for _ in range(rank)
    )
    unit = pick.choice((1, item, item))
    return Region(
        pick.randint(0, 12) * unit,
        sizes,
        tuple(pick.randint(0, 6) * unit for _ in range(rank)),
        item,
    )


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


def test_a_region_that_is_too_large_for_a_mask_is_decided_safely():
    rows = Region(0, (1 << 20, 3), ((1 << 12) + 4, 4), 4)
    columns = Region(8, (1 << 20,), ((1 << 12) + 4,), 4)
    apart = Region(12, (1 << 20,), ((1 << 12) + 4,), 4)
    assert overlap(rows, columns)
    assert overlap(rows, apart), "they share no byte, but that needs a mask to know"
    assert not contains(rows, columns)
    assert not overlap(rows, Region(rows.end, (4,), (4,), 4))


def test_symbolic_sizes_are_decided_for_all_of_them():
    tensor = symbolic(torch.ones(6, 4), ShapeEnv())
    whole = Region.of(tensor)
    assert is_dense(whole)
    assert not overlaps_itself(whole)
    assert not overlaps_itself(Region.of(tensor.t()))
    assert overlap(whole, Region.of(tensor[1:]))
    assert overlaps_itself(Region.of(tensor.expand(2, -1, -1)))
    assert whole.same(Region.of(tensor.view(tensor.shape)))


def test_a_view_starts_where_its_offset_is_in_bytes():
    base = torch.zeros(8)
    assert Region.of(base[3:]).start == 12
    assert not overlap(Region.of(base[3:5]), Region.of(base[5:]))
    assert overlap(Region.of(base[3:5]), Region.of(base[4:]))
    assert not overlap(Region.of(base[1::2]), Region.of(base[2::2]))


def test_a_large_region_is_decided_exactly_where_its_strides_have_much_in_common():
    rows = Region(1, (1 << 14,), (4096,), 1024)
    assert not overlap(rows, Region(1 + 2048, (1 << 14,), (4096,), 1024))
    assert overlap(rows, Region(1 + 4096, (1 << 13,), (4096,), 1024))
    assert not overlaps_itself(Region(0, (2, 1 << 14), (6144, 4096), 1024))


def test_regions_far_out_in_a_storage_are_decided_exactly():
    odd = Region((1 << 25) + 1, (8,), (2,), 1)
    assert not overlap(Region(1 << 25, (8,), (2,), 1), odd)
    assert not overlap(odd, Region(1 << 25, (8,), (2,), 1))
    assert overlap(odd, Region(1 << 25, (8,), (3,), 1))


@pytest.mark.parametrize(
    ("sizes", "one", "other", "expected"),
    [
        ((2, 3), (3, 1), (3, 1), True),
        ((2, 3), (3, 1), (1, 2), False),
        ((2, 3), (3, 1), (4, 1), False),
        ((1, 3), (3, 1), (9, 1), True),
        ((2, 1), (3, 1), (3, 7), True),
        ((1, 3), (3, 1), (3, 2), False),
        ((0, 3), (3, 1), (7, 5), True),
        ((), (), (), True),
    ],
)
def test_strides_are_the_same_except_those_that_are_never_used(sizes, one, other, expected):
    assert same_strides(sizes, one, other) is expected


def test_strides_and_sizes_are_of_one_length():
    with pytest.raises(ValueError, match="zip"):
        same_strides((2,), (1,), (1, 1))
    with pytest.raises(ValueError, match="zip"):
        is_dense(Region(0, (2, 2), (4,), 4))


def symbolic(tensor: torch.Tensor, shapes: ShapeEnv) -> torch.Tensor:
    return FakeTensorMode(shape_env=shapes).from_tensor(tensor, static_shapes=False)


# Strides that exceed the extent of smaller ones, whatever the sizes, in any order of dimensions,
# with and without gaps.
NESTED = [
    lambda x: x[::2],
    lambda x: x[:, :-1],
    lambda x: x[:, :-1].transpose(0, 1),
    lambda x: x[:, :-1].transpose(0, 2),
    lambda x: x.permute(1, 2, 0),
    lambda x: x.permute(2, 0, 1),
]


@pytest.mark.parametrize("view", NESTED)
@pytest.mark.parametrize("shape", [(4, 9, 5), (9, 5, 4), (5, 4, 9)])
def test_a_view_of_symbolic_size_that_nests_does_not_overlap_itself(view, shape):
    assert not overlaps_itself(Region.of(view(symbolic(torch.ones(shape), ShapeEnv()))))


def test_no_question_adds_a_guard():
    shapes = ShapeEnv()
    tensor = symbolic(torch.ones(4, 9, 5), shapes)
    views = [
        Region.of(each)
        for each in (tensor, tensor[:, :-1], tensor.permute(2, 0, 1), tensor[1:2, 1:2])
    ]
    views.append(
        Region(0, (2, 2), (tensor.shape[1], tensor.shape[0]), 1)
    )  # either stride may be the larger
    before = len(shapes.guards)
    for one, other in (
        (one, other) for one in [*views, Region(0, (400,), (4,), 4)] for other in views
    ):
        overlap(one, other), overlap(other, one), contains(one, other), contains(other, one)
        overlaps_itself(other), is_dense(other), one.same(other)
    assert len(shapes.guards) == before
    assert not contains(Region(0, (400,), (4,), 4), views[0]), "the symbols may be larger"


def test_a_data_dependent_size_is_taken_for_large():
    shapes = ShapeEnv()
    size = shapes.create_unbacked_symint()
    torch._check(size >= 2)
    assert is_dense(Region(0, (3, size), (4 * size, 4), 4))
