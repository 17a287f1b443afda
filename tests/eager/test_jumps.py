"""Which results correct kernels may have on two sides of a jump, or beside a huge number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.oracles.observation import observe_eager

HIDDEN = torch.finfo(torch.float32).min
INF = float("inf")
SECOND_ROW = torch.tensor([[False], [True]])
SEVENTH = torch.tensor([1.0, 2.0, 4.0, 7.0])  # of x.exp().log(), which rounds


def scaled(x: Tensor) -> Tensor:
    return x.exp().log()


def is_open(function: Callable[[Tensor], object], x: Tensor) -> bool:
    """Whether any value of the output is one that a correct kernel may have."""
    observed, trace = observe_eager(function, [x])
    assert observed.error is None
    return trace.bits_open(observed.outputs[0])


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: scaled(x).round(), SEVENTH),
        (lambda x: scaled(x).round().to(torch.int8), SEVENTH),
        (lambda x: (scaled(x) <= 5).float(), SEVENTH),
        (lambda x: scaled(x).floor(), SEVENTH + 0.5),
        (lambda x: scaled(x).argmin(dim=0), SEVENTH),
        (lambda x: scaled(x).view(2, 2).argmax(dim=1), torch.tensor([1.0, 2.0, 2.0, 4.0])),
        (lambda x: scaled(x).masked_fill(x < 2, HIDDEN).softmax(0), SEVENTH),
        (lambda x: (scaled(x) + torch.where(x < 2, HIDDEN, 0.0)).softmax(0), SEVENTH),
        (lambda x: scaled(x).masked_fill(x < 2, -INF).softmax(0), SEVENTH),
        (lambda x: scaled(x).view(2, 2).masked_fill(SECOND_ROW, -INF).log_softmax(0), SEVENTH),
        (lambda x: scaled(x).sum().sort(-1).indices, SEVENTH),
    ],
    ids=range(11),
)
def test_away_from_a_jump_all_kernels_say_the_same(
    function: Callable[[Tensor], object], x: Tensor
) -> None:
    assert not is_open(function, x)


def masked_below(score: Tensor, least: Tensor) -> Tensor:
    return score.masked_fill(score < least, 0.0)


@pytest.mark.parametrize(
    "compared",
    [
        lambda y: masked_below(y, y.topk(2).values[-1:]),
        lambda y: masked_below(y, y.sort().values[[1]]),
        lambda y: masked_below(y.view(2, 2), y.view(2, 2).amax(1, keepdim=True)),
        lambda y: (y == y.clone().max()).float(),
        lambda y: (y.clone() >= y[1:2]).float(),
        lambda y: (y.relu_() <= y.median()).float(),
    ],
    ids=["topk", "sort", "amax", "max of a copy", "a part", "written before"],
)
def test_an_element_equals_itself_on_all_kernels(compared: Callable[[Tensor], Tensor]) -> None:
    assert not is_open(lambda x: compared(scaled(x)), SEVENTH)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda y: (y == y.max()).float(), torch.tensor([1.0, 2.0, 2.0])),
        (lambda y: (y[1:] > y[:-1]).float(), torch.tensor([1.0, 2.0, 2.0])),
        (lambda y: (torch.cat([y, y.log().exp()]) < y.max()).float(), SEVENTH),
        (lambda y: (y == y.to(torch.bfloat16).float()).float(), SEVENTH),
        (lambda y: (y.masked_fill(y < 3, 7.0) < y.max()).float(), SEVENTH),
        (lambda y: (y.max() > y.mul_(2).mul_(0.5)).float(), SEVENTH),
    ],
    ids=["ties", "parts with ties", "others beside it", "rounded", "a constant", "written after"],
)
def test_another_element_may_be_on_the_other_side(
    function: Callable[[Tensor], Tensor], x: Tensor
) -> None:
    assert is_open(lambda x: function(scaled(x)), x)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: scaled(x).round(), SEVENTH + 0.5),
        (lambda x: scaled(x).floor(), SEVENTH),
        (lambda x: scaled(x).to(torch.int8), SEVENTH),
        (lambda x: (scaled(x) <= 4).float(), SEVENTH),
        (lambda x: scaled(x).argmin(dim=0), torch.tensor([2.0, 1.0, 1.0])),
        (lambda x: scaled(x).sort().indices, torch.tensor([2.0, 1.0, 2.0])),
        (lambda x: scaled(x).masked_fill(x < 9, HIDDEN).softmax(0), SEVENTH),
        (lambda x: scaled(x).masked_fill(x < 9, -INF).softmax(0), SEVENTH),
        (lambda x: scaled(x) + 1e20 - 1e20, SEVENTH),
    ],
    ids=range(9),
)
def test_at_a_jump_they_may_say_another_thing(
    function: Callable[[Tensor], object], x: Tensor
) -> None:
    assert is_open(function, x)
