"""Functions that run autograd: training steps, penalties, hooks, functions with a backward."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)

WEIGHT = nn.Parameter(torch.randn(4, 3))
BIAS = nn.Parameter(torch.zeros(3))


def manual_descent(x: Tensor, labels: Tensor) -> Tensor:
    """A training step by hand: backward, a write without gradients, gradients to zero."""
    loss = F.cross_entropy(x @ WEIGHT + BIAS, labels)
    loss.backward()
    with torch.no_grad():
        for parameter in (WEIGHT, BIAS):
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=0.1)
            parameter.grad.zero_()
    return loss.detach()


class RoundThrough(torch.autograd.Function):
    """Round to a grid; gradients pass as if nothing was rounded, where nothing was cut."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        scaled = x / scale
        ctx.save_for_backward((scaled.abs() <= 7).to(x.dtype))
        return scaled.round().clamp_(-7, 7).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return grads[0] * kept, None


def fake_quantize(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    weight = weight.detach().requires_grad_()
    scale = weight.detach().abs().max() / 5
    out = x @ RoundThrough.apply(weight, scale)
    (grad,) = torch.autograd.grad(out.square().sum(), weight)
    return out.detach(), grad


blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))


def checkpointed_stack(x: Tensor) -> Tensor:
    """Blocks whose activations are computed again in the backward pass."""
    for block in blocks:
        x = x + checkpoint(block, x, use_reentrant=False)
    loss = x.square().mean()
    loss.backward()
    return loss.detach()


def hooked_gradients(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """A hook scales a gradient on its way back, as for gradient reversal."""
    x = x.detach().requires_grad_()
    hidden = torch.tanh(x @ weight)
    hidden.register_hook(lambda grad: -0.5 * grad)
    hidden.square().sum().backward()
    assert x.grad is not None
    return hidden.detach(), x.grad


class ScaleInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        x.mul_(factor)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.factor, None


def function_that_writes(x: Tensor) -> tuple[Tensor, Tensor]:
    """A function of autograd marks what it wrote."""
    x = x.detach().requires_grad_()
    y = x * 3
    ScaleInPlace.apply(y, 0.5)
    (grad,) = torch.autograd.grad(y.sin().sum(), x)
    return y.detach(), grad


def differentiable_buffer(state: Tensor, w: Tensor) -> Tensor:
    """Rows of a buffer without gradients become functions of what requires them."""
    state[1] = w * 2
    state[2].add_(state[1])
    return state.sum(0)


def average_of_leaf(average: Tensor, x: Tensor) -> Tensor:
    """A leaf is written without gradients, and then used with them."""
    with torch.no_grad():
        average.mul_(0.9).add_(x, alpha=0.1)
    return (average * x).sum()


INPUTS = {
    "manual_descent": lambda: (torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])),
    "fake_quantize": lambda: (torch.randn(2, 3), torch.randn(3, 4, requires_grad=True)),
    "checkpointed_stack": lambda: torch.randn(3, 4),
    "hooked_gradients": lambda: (torch.randn(2, 3), torch.randn(3, 3)),
    "function_that_writes": lambda: torch.randn(4),
    "differentiable_buffer": lambda: (torch.randn(4, 4), torch.randn(4, requires_grad=True)),
    "average_of_leaf": lambda: (
        torch.randn(4, requires_grad=True),
        torch.randn(4, requires_grad=True),
    ),
}
