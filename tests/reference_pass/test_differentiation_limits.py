"""Training where autograd, or AOTAutograd, has a limit: as eager, whatever runs."""

from __future__ import annotations

import pytest
import torch

from aliasproof.reference_pass.backend import aliasproof
from tests.reference_pass.test_differentiation import assert_as_eager, weights


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_memory_around_an_input_keeps_its_gradient():
    def expands_and_adds(x):
        wide = x.expand(3, 4)
        x.add_(1)
        return wide.sum(1) + wide[0, 0]

    def gradient(function):
        leaf = torch.arange(6.0).requires_grad_()
        base = leaf * 1
        ends = function(base[2:5].view(3, 1)).sum() + (base * torch.arange(1.0, 7)).sum()
        (found,) = torch.autograd.grad(ends, leaf)
        return found.tolist()

    compiled = torch.compile(expands_and_adds, backend=aliasproof)
    assert gradient(compiled) == gradient(expands_and_adds)


def complex_weights():
    leaf = weights().detach().to(torch.complex64).requires_grad_()
    return (leaf * 1,), [leaf]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.zero_(), x * 2)[1],
        lambda x: (x[:2].add_(1), x * 2)[1],
    ],
)
def test_writes_to_complex_numbers(function):
    assert_as_eager(function, complex_weights)


def test_a_gradient_with_the_lazy_conjugate_bit():
    x = weights()
    y = torch.compile(lambda x: x.to(torch.complex64)._conj(), backend=aliasproof)(x)
    assert y.is_conj()
    (gradient,) = torch.autograd.grad(y, x, torch.ones(3, dtype=torch.complex64))
    assert gradient.tolist() == [1.0] * 3


def test_a_backward_graph_gets_gradients_without_lazy_bits():
    x = weights()
    y = torch.compile(lambda x: x.to(torch.complex64) * 1j, backend=aliasproof)(x)
    given = torch.full((3,), 2 + 3j).conj()
    assert given.is_conj()
    (gradient,) = torch.autograd.grad(y, x, given)
    assert gradient.tolist() == [-3.0] * 3


def test_metadata_of_an_input_under_no_grad():
    def turns(x):
        with torch.no_grad():
            torch.ops.aten.transpose_.default(x, 0, 1)
        return x.view(-1) * torch.arange(4.0)

    def transposed():
        leaf = torch.arange(4.0).requires_grad_()
        return ((leaf * 1).view(2, 2).t(),), [leaf]

    assert_as_eager(turns, transposed)


@torch.library.custom_op("limits::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@sine.register_fake
def _(x):
    return torch.empty_like(x)


sine.register_autograd(
    lambda ctx, gradient: gradient * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def doubles_a_row(x):
    y = x.view(3, 1) * torch.ones(3, 2)
    y.t()[0].mul_(2)
    return y


def elu_of_a_view(x):
    y = x.view(3, 1) * torch.tensor([1.0, -17.0])
    torch.nn.functional.elu_(y.t())
    return y


def celu_of_a_view(x):
    y = x.view(3, 1) * torch.tensor([1.0, -7.5])
    torch.celu_(y.t(), 1.2)
    return y


@pytest.mark.parametrize(
    "function", [lambda x: sine(doubles_a_row(x)), elu_of_a_view, celu_of_a_view]
)
def test_a_backward_that_is_not_that_of_the_functional_form(function):
    def given():
        leaf = (torch.arange(1.0, 4) / 7).requires_grad_()
        return (leaf * 1,), [leaf]

    assert_as_eager(function, given)


def test_what_dynamo_makes_of_addcmul_keeps_its_gradients():
    def adds(x, y):
        z = x * 1
        z.t().addcmul_(y, y, value=3.14)  # with `prims.fma`, whose backward is in Python
        return z

    x, y = (torch.arange(float(n), n + 6).view(2, 3).requires_grad_() for n in (0, 1))
    transposed = y.detach().t().contiguous().requires_grad_()
    result = torch.compile(adds, backend=aliasproof)(x, transposed)
    gradients = torch.autograd.grad(result.sum(), (x, transposed))
    assert gradients[0].tolist() == torch.ones(2, 3).tolist()
    torch.testing.assert_close(gradients[1], 6.28 * transposed)
