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


def manual_descent_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])


critic = nn.Sequential(nn.Linear(3, 5), nn.Softplus(), nn.Linear(5, 1))


def gradient_penalty(real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
    """WGAN-GP: the gradient of a gradient."""
    between = real.lerp(fake, mix).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    (critic(fake) - critic(real)).mean().add(penalty, alpha=10).backward()
    return penalty.detach()


def gradient_penalty_inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(4, 3), torch.randn(4, 3), torch.rand(4, 1)


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


def fake_quantize_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3), torch.randn(3, 4, requires_grad=True)


blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))


def checkpointed_stack(x: Tensor) -> Tensor:
    """Blocks whose activations are computed again in the backward pass."""
    for block in blocks:
        x = x + checkpoint(block, x, use_reentrant=False)
    loss = x.square().mean()
    loss.backward()
    return loss.detach()


def checkpointed_stack_inputs() -> Tensor:
    return torch.randn(3, 4)


victim = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def adversarial_example(x: Tensor, labels: Tensor, radius: float) -> Tensor:
    """Two steps of projected gradient ascent on the input."""
    perturbed = x.clone()
    for _ in range(2):
        perturbed.requires_grad_()
        loss = F.cross_entropy(victim(perturbed), labels)
        (grad,) = torch.autograd.grad(loss, perturbed)
        perturbed = perturbed.detach().add_(grad.sign(), alpha=radius / 2)
        torch.clamp(perturbed, x - radius, x + radius, out=perturbed)
    return perturbed.clamp_(0, 1)


def adversarial_example_inputs() -> tuple[Tensor, Tensor, float]:
    return torch.rand(3, 4), torch.tensor([0, 1, 1]), 0.1


def hooked_gradients(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """A hook scales a gradient on its way back, as for gradient reversal."""
    x = x.detach().requires_grad_()
    hidden = torch.tanh(x @ weight)
    hidden.register_hook(lambda grad: -0.5 * grad)
    hidden.square().sum().backward()
    assert x.grad is not None
    return hidden.detach(), x.grad


def hooked_gradients_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3), torch.randn(3, 3)


def physics_residual(t: Tensor, y0: Tensor, weight: Tensor) -> Tensor:
    """The residual of an ordinary differential equation, by gradients of the inputs."""
    t = t.detach().requires_grad_()
    y = y0 + t * torch.tanh(t.unsqueeze(1) * weight).sum(dim=1)
    (slope,) = torch.autograd.grad(y.sum(), t, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), t)
    return (bend + y).detach()


def physics_residual_inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.linspace(0, 1, 5), torch.tensor(1.0), torch.randn(4)


frozen = nn.Linear(4, 4).requires_grad_(False)
head = nn.Linear(4, 2)


def fine_tune_head(x: Tensor, target: Tensor, running: Tensor) -> Tensor:
    """A frozen body, a head that is trained, and a running loss that is written in place."""
    with torch.no_grad():
        features = F.relu(frozen(x))
        features /= features.norm(dim=1, keepdim=True).clamp_(min=1e-6)
    loss = F.mse_loss(head(features), target)
    loss.backward()
    running.mul_(0.9).add_(loss.detach(), alpha=0.1)
    return running.clone()


def fine_tune_head_inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(3, 4), torch.randn(3, 2), torch.tensor(1.0)
