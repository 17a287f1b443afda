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


def test_guards_stay_when_they_replace_symbols_by_numbers():
    def specialised(x):
        return x + 1 if len(x) == 4 else x

    def compares(x, y):
        larger = x.shape[0] > y.shape[0]
        return x + 1 if larger and x.shape[0] == 8 else x

    with pytest.raises(Refused, match=r"size\(\)\[0\] == 4"):
        pipeline(specialised, numbers(4), sizes="symbolic")(numbers(5))
    # One symbol is left, and a guard on both was noted before the other was replaced.
    compiled = pipeline(compares, numbers(8), numbers(5), sizes="symbolic")
    assert torch.equal(compiled(numbers(8), numbers(4)), numbers(8) + 1)
    with pytest.raises(Refused, match="size"):
        compiled(numbers(8), numbers(9))


def test_a_fake_kernel_that_takes_no_symbols_in_cpp():
    def draws(x):
        return x.to(torch.bfloat16).normal_(-2, 0.5)

    results = []
    for run in (pipeline(draws, numbers(4, 3), sizes="symbolic"), draws):
        torch.manual_seed(0)
        results.append(run(numbers(6, 5)))
    assert torch.equal(*results)


def test_copies_of_several_views_of_symbolic_size():
    def unbinds(x):
        return torch.unbind_copy(x.t())

    compiled = pipeline(unbinds, numbers(4, 3), sizes="symbolic")
    assert all(map(torch.equal, compiled(numbers(5, 3)), unbinds(numbers(5, 3))))


def test_calls_without_a_fake_kernel_for_symbols_are_refused():
    with pytest.raises(Refused, match=r"geqrf.* has no kernel for tensors without data"):
        pipeline(torch.geqrf, numbers(3, 3), sizes="symbolic")
    with pytest.raises(Refused, match=r"resize_ of a tensor of symbolic size"):
        pipeline(lambda x: x.resize_(2, 2), numbers(4, 3), sizes="symbolic")


def test_a_copy_of_a_graph_has_its_guards_after_the_next_pass():
    functional = functionalize(branches, numbers(4, 3), sizes="symbolic")
    compiled = reinplace(copy.deepcopy(remove_noops(copy.deepcopy(functional))))
    for graph_module in (functional, compiled):
        assert torch.equal(graph_module(numbers(7, 2)), numbers(7, 2) + 1)
        with pytest.raises(Refused, match="4 <= "):
            graph_module(numbers(2, 3))


def test_a_graph_of_fixed_sizes_checks_nothing():
    assert not pipeline(branches, numbers(4, 3))._forward_pre_hooks
