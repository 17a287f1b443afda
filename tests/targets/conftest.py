"""All targets of torch, and functions that every target must compile correctly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Function, Target

# Those beyond it have tests of their own.
OF_TORCH = {name: each for name, each in TARGETS.items() if each.needs is None}


@pytest.fixture(params=OF_TORCH.values(), ids=list(OF_TORCH))
def tested(request: pytest.FixtureRequest) -> Target:
    """Each target of torch."""
    found: Target = request.param
    return found


# Dynamo wraps errors, and AOTAutograd runs in another way behind it. A package takes five seconds.
DIRECT = {
    name: each
    for name, each in OF_TORCH.items()
    if "torch.compile(" not in each.recipe and name != "aot-inductor"
}


@pytest.fixture(params=DIRECT.values(), ids=list(DIRECT))
def direct(request: pytest.FixtureRequest) -> Target:
    """Each target whose recipe does not go through Dynamo."""
    found: Target = request.param
    return found


def mutate_and_view(x: Tensor, y: Tensor) -> object:
    x.mul_(2)
    x[0].add_(y[1])
    return x.t(), x + y


def swap(x: Tensor, y: Tensor) -> object:
    saved = x.clone()
    x.copy_(y)
    y.copy_(saved)
    return saved


RIGHT: dict[str, Function] = {
    "nothing": lambda x, y: None,
    "an input": lambda x, y: x,
    "out=": lambda x, y: torch.add(x, 1, out=y),
    "mutate and view": mutate_and_view,
    "swap": swap,
    "a chain of views": lambda x, y: x.t()[1:].unsqueeze(0).select(2, 0).mul_(3),
}


@pytest.fixture(params=RIGHT.values(), ids=list(RIGHT))
def right(request: pytest.FixtureRequest) -> Function:
    """A function of two matrices that every target compiles correctly."""
    found: Function = request.param
    return found
