"""A graph with symbolic sizes is right for the inputs that meet its guards, and refuses others."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from reference_pass import Refused, functionalize, pipeline, reinplace, remove_noops


def numbers(*sizes: int) -> Tensor:
    return torch.arange(float(torch.Size(sizes).numel())).view(sizes)


def writes_a_reshape(x):
    x.t().reshape(-1).add_(1)  # a copy, but for one column
    return x * 1


def branches(x):
    return x + 1 if x.shape[0] > 3 else x * 2


def loops(x):
    return sum((part.sum() for part in x.split(2)), x.sum())


@pytest.mark.parametrize(
    ("function", "other", "guard"),
    [
        (writes_a_reshape, numbers(4, 1), "2 <= .*size"),
        (branches, numbers(2, 3), "4 <= .*size"),
        (loops, numbers(8, 3), "// 2.* == 2"),
        (lambda x: x.contiguous().add_(1), numbers(3, 4).t(), "stride"),
        (lambda x: x + 1, numbers(4), "1 dimensions"),
    ],
)
def test_a_graph_refuses_inputs_that_break_a_guard(function, other, guard):
    def named(x):
        return function(x)

    compiled = pipeline(named, numbers(4, 3), sizes="symbolic")
    inputs = numbers(4, 5), numbers(4, 5)
    assert torch.equal(compiled(inputs[0]), function(inputs[1]))
    assert torch.equal(*inputs)
    with pytest.raises(Refused, match=guard):
        compiled(other)


def test_a_copy_of_a_graph_has_its_guards_after_the_next_pass():
    functional = functionalize(branches, numbers(4, 3), sizes="symbolic")
    compiled = reinplace(copy.deepcopy(remove_noops(copy.deepcopy(functional))))
    for graph_module in (functional, compiled):
        assert torch.equal(graph_module(numbers(7, 2)), numbers(7, 2) + 1)
        with pytest.raises(Refused, match="4 <= "):
            graph_module(numbers(2, 3))


def test_a_graph_of_fixed_sizes_checks_nothing():
    assert not pipeline(branches, numbers(4, 3))._forward_pre_hooks
