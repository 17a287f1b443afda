"""Fused rounding: only what depends on a rounding between two ops is noted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.eager.definedness import Watch

BF16, F32 = torch.bfloat16, torch.float32
THIRD = 1 / 3


def rounds_between(function: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    watch = Watch([x])
    with watch, torch.no_grad():
        result = function(x)
    return watch.trace.rounds_between(result)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda x: x * THIRD, False, id="one op rounds as eager"),
        pytest.param(lambda x: x * THIRD * 3, True, id="two ops"),
        pytest.param(lambda x: (x * 2 + 1) * 4, False, id="small integers lose no digit"),
        pytest.param(lambda x: x.mul_(THIRD).add_(1), True, id="in place"),
        pytest.param(lambda x: (x * THIRD).clone(), False, id="moved in its dtype"),
        pytest.param(lambda x: (x * THIRD).clone() * 3, True, id="moved, then read"),
        pytest.param(lambda x: (x * THIRD).float(), True, id="moved to a wider dtype"),
        pytest.param(lambda x: x * THIRD > 1, True, id="compared"),
        pytest.param(lambda x: (x * THIRD)[1:] * 3, True, id="through a view"),
        pytest.param(lambda x: torch.mul(x, THIRD, out=x.clone()) * 3, True, id="out="),
        pytest.param(lambda x: x.float() * THIRD * 3, False, id="wide"),
        pytest.param(torch.rand_like, False, id="random"),
    ],
)
def test_what_depends_on_rounding_is_noted(
    function: Callable[[Tensor], Tensor], expected: bool
) -> None:
    assert rounds_between(function, torch.arange(1, 5).to(BF16)) == expected


def test_a_cast_to_a_narrow_dtype_and_back_is_noted() -> None:
    assert rounds_between(lambda x: x.to(BF16).to(F32), torch.tensor([THIRD]))
    assert not rounds_between(lambda x: x.to(BF16).to(F32), torch.tensor([3.0]))


def test_a_number_may_come_from_any_tensor() -> None:
    watch = Watch([x := torch.ones(2, dtype=BF16)])
    with watch:
        number = (x * THIRD).sum().item()
    assert watch.trace.rounds_between(number)
