"""With `dynamic=True`, one compiled graph is right for all sizes that meet its guards."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional

from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.pipeline import Functionalize

SIZES = (4, 6), (5, 7), (8, 3), (3, 9), (5, 7)
ROWS = (4, 6), (5, 6), (9, 6)


@pytest.fixture
def built():
    """Counts the pipelines that are built."""
    torch._dynamo.reset()
    with mock.patch(
        "aliasproof.reference_pass.backend.building.Functionalize", wraps=Functionalize
    ) as pipelines:
        yield lambda: pipelines.call_count
    torch._dynamo.reset()


def numbers(*sizes: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(sizes).numel())).view(sizes) / 8 - 2


def writes_a_view(x):
    y = x * 1
    y.t()[1:].add_(1)
    return y, y[0]


def writes_its_input(x):
    x[1:].mul_(2)
    return x.view(-1)[::2] + 1


def runs_alike(compiled, program, sizes, *more, trains=False):
    for size in sizes:
        expected, actual = (numbers(*size).requires_grad_(trains) for _ in range(2))
        torch.manual_seed(0)
        wanted = program(expected, *more)
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(actual, *more), wanted, rtol=0, atol=0)
        if trains:
            wanted.sum().backward()
            torch.manual_seed(0)
            compiled(actual, *more).sum().backward()
            torch.testing.assert_close(actual.grad, expected.grad, rtol=0, atol=0)
        assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    ("program", "sizes", "more"),
    [
        (writes_a_view, SIZES, ()),
        (writes_its_input, SIZES, ()),
        (functional.dropout, SIZES, (0.5,)),
        (lambda x: functional.layer_norm(x, x.shape[1:], eps=1e-3), SIZES, ()),
        (lambda x: functional.interpolate(x[None], scale_factor=2.0), SIZES, ()),
        (nn.BatchNorm1d(6).eval().requires_grad_(False), ROWS, ()),
    ],
)
def test_one_graph_serves_all_sizes(built, program, sizes, more):
    runs_alike(torch.compile(program, backend=aliasproof, dynamic=True), program, sizes, *more)
    assert built() == 1


@pytest.mark.parametrize("program", [torch.hann_window, lambda n: torch.arange(1, 3 * n, n)])
def test_ints_without_a_tensor(built, program):
    compiled = torch.compile(program, backend=aliasproof, dynamic=True)
    for number in (1, 5, 6):
        assert torch.equal(compiled(number), program(number))


@pytest.mark.parametrize("program", [lambda x: (x.sin() * x).sum(0), nn.Linear(6, 3)])
def test_a_forward_and_a_backward_graph_serve_all_sizes(built, program):
    compiled = torch.compile(program, backend=aliasproof, dynamic=True)
    runs_alike(compiled, program, ROWS, trains=True)
    assert built() == 2


def test_the_second_size_makes_it_a_symbol(built):
    runs_alike(torch.compile(writes_a_view, backend=aliasproof), writes_a_view, SIZES)
    assert built() == 2


def test_a_size_that_breaks_a_guard_has_a_graph_of_its_own(built):
    def reads_a_size(x):
        # A kernel asks for the size, so Dynamo knows nothing of it.
        return torch.diag(x.reshape(-1)[: x.shape[0]]) + x.t().reshape(-1).add_(1).sum()

    compiled = torch.compile(reads_a_size, backend=aliasproof, dynamic=True)
    runs_alike(compiled, reads_a_size, [(4, 3), (5, 4), (4, 1), (6, 3)])
    assert built() <= 3


def test_inputs_that_share_a_storage_have_a_graph_per_size(built):
    def program(x, y):
        x.add_(1)
        return y * 2

    compiled = torch.compile(program, backend=aliasproof, dynamic=True)
    for rows in (4, 5, 6):
        for apart in (False, True):
            expected, actual = numbers(rows + 1, 3), numbers(rows + 1, 3)
            wanted = program(expected[1:], expected[:1].clone() if apart else expected[:rows])
            given = actual[:1].clone() if apart else actual[:rows]
            assert torch.equal(compiled(actual[1:], given), wanted)
            assert torch.equal(actual, expected)
