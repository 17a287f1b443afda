"""Calls that eager refuses did not run; what is undefined cannot be caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.eager.definedness import Undefined
from aliasproof.oracles.observation import observe_eager

Call = Callable[[Tensor], object]


def caught(call: Call, *errors: type[Exception]) -> Call:
    def function(x: Tensor) -> Tensor:
        try:
            call(x)
        except errors:
            return x + 1
        return x

    return function


REFUSED: dict[str, Call] = {
    "overlap": lambda x: x.expand(3, 4).add_(1),
    "partial overlap": lambda x: x[1:].copy_(x[:-1]),
    "index": lambda x: x.index_put_((torch.tensor([9, 9]),), torch.ones(2)),
    "shapes": lambda x: torch.ones(2, dtype=torch.int32).copy_(torch.full((3,), torch.nan)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_did_not_run(name: str) -> None:
    function = caught(REFUSED[name], RuntimeError, IndexError)
    observed, trace = observe_eager(function, [torch.arange(4.0)])
    (output,) = observed.outputs
    assert isinstance(output, Tensor)
    assert output.tolist() == [1, 2, 3, 4]
    assert trace.overlap_error is ("overlap" in name)


UNDEFINED: list[Call] = [
    lambda x: x.index_put_((torch.tensor([1, 1]),), torch.arange(2.0)),
    lambda x: torch.full((4,), -(2**31), dtype=torch.int32).floor_divide_(-1),
]


@pytest.mark.parametrize("call", UNDEFINED)
def test_what_is_undefined_cannot_be_caught(call: Call) -> None:
    with pytest.raises(Undefined):
        observe_eager(caught(call, Exception), [torch.arange(4.0)])


def test_kernels_disagree_on_copies_of_a_broken_bool() -> None:
    x = torch.tensor([2], dtype=torch.uint8).view(torch.bool)
    assert [x.clone().view(torch.uint8).item(), torch.cat([x]).view(torch.uint8).item()] == [1, 2]
