"""Ops that take elements, or add some: their hashes, compared with other ways to write the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._inductor.decomposition import decompositions

from tests.oracles.scenes import Function, same_hashes

aten = torch.ops.aten
ROWS, FLAT = torch.arange(1.0, 9).reshape(4, 2), torch.arange(1.0, 9)
LOWER = torch.tensor([0, 2, 3])
# Each call, another way to write it, and the operand.
CALLS: dict[str, tuple[Function, Function, Tensor]] = {
    "select_backward": (
        lambda g: aten.select_backward(g, [4, 2], 0, 1),
        lambda g: torch.zeros(4, 2).select_scatter(g, 0, 1),
        FLAT[:2],
    ),
    "slice_backward": (
        lambda g: aten.slice_backward(g, [6, 2], 0, 1, 5, 1),
        lambda g: aten.constant_pad_nd(g, [0, 0, 1, 1]),
        ROWS,
    ),
    "diagonal_backward": (
        lambda g: aten.diagonal_backward(g, [2, 2], 0, 0, 1),
        lambda g: torch.zeros(2, 2).diagonal_scatter(g),
        FLAT[:2],
    ),
    "windows that touch": (
        lambda g: aten.unfold_backward(g, [8], 0, 2, 2),
        lambda g: g.reshape(8).clone(),
        ROWS,
    ),
    "windows that overlap": (
        lambda g: aten.unfold_backward(g, [5], 0, 2, 1),
        lambda g: torch.zeros(5).index_put((torch.arange(5).unfold(0, 2, 1),), g, True),
        ROWS,
    ),
    "windows in the decomposition of Inductor": (
        lambda g: aten.unfold_backward(g, [5], 0, 3, 1),
        lambda g: decompositions[aten.unfold_backward.default](g, [5], 0, 3, 1),
        torch.arange(9.0).reshape(3, 3),
    ),
    "rows that are added": (
        lambda g: torch.zeros(2, 2).index_add(0, torch.tensor([0, 1, 0, 1]), g),
        lambda g: aten.embedding_dense_backward(g, torch.tensor([0, 1, 0, 1]), 2, -1, False),
        ROWS,
    ),
    "rows in another order": (lambda x: x[torch.tensor([3, 2, 1, 0])], lambda x: x.flip(0), ROWS),
    "a triangle": (
        lambda x: x[:2].tril(),
        lambda x: aten.put(torch.zeros(2, 2), LOWER, x.take(LOWER)),
        ROWS,
    ),
    "a pad with a number": (
        lambda x: aten.constant_pad_nd(x, [1, 0], float("inf")),
        lambda x: torch.cat([torch.full((1,), float("inf")), x]),
        FLAT,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_two_ways_to_take_the_same_elements_are_equal(name: str) -> None:
    one, other, operand = CALLS[name]
    torch.testing.assert_close(one(operand), other(operand))
    assert same_hashes(one, other, operand)


@pytest.mark.parametrize("name", CALLS)
def test_another_element_shows(name: str) -> None:
    one, other, operand = CALLS[name]
    assert not same_hashes(one, lambda first: other(first.flip(0)), operand)
    assert not same_hashes(one, lambda first: other(first + 1), operand)


def test_an_index_that_comes_from_an_input_decides_nothing() -> None:
    rows, order = ROWS, torch.tensor([3, 2, 1, 0])
    assert not same_hashes(lambda x, i: x[i], lambda x, i: x.flip(0), rows, order)


def test_what_is_added_twice_is_no_element() -> None:
    twice, once = torch.tensor([0, 0]), torch.tensor([0, 1])
    zeros = torch.zeros(2, 2)
    assert not same_hashes(
        lambda g: zeros.index_add(0, twice, g), lambda g: zeros.index_add(0, once, g), ROWS[:2]
    )
    assert not same_hashes(
        lambda g: zeros.index_add(0, once, g, alpha=2),
        lambda g: zeros.index_add(0, once, g),
        ROWS[:2],
    )
