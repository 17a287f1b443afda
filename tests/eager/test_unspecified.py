"""Calls with one meaning on the device at hand, though torch specifies none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.oracles.observation import observe_eager


@torch.library.custom_op("unspecified_test::fold", mutates_args=("x",))
def fold(x: Tensor, y: Tensor) -> None:
    for one, other in zip(x, y, strict=True):
        one.add_(other)


UNSPECIFIED = [
    pytest.param(lambda x: torch._foreach_add_([x[:3], x[1:]], 1), id="slices that overlap"),
    pytest.param(lambda x: torch._foreach_add_([x, x], 1), id="the same twice"),
    pytest.param(
        lambda x: torch._foreach_add_([x[:2], x[2:]], [x[2:], x[:2]]),
        id="one reads what another writes",
    ),
    pytest.param(lambda x: torch.ops.unspecified_test.fold(x[1:], x[:-1]), id="a Python operator"),
]


@pytest.mark.parametrize("function", UNSPECIFIED)
def test_unspecified(function: Callable[..., object]) -> None:
    observed, trace = observe_eager(function, [torch.arange(1.0, 5)])
    assert observed.error is None
    assert trace.unspecified is not None
