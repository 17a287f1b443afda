"""`torch.func`: vmap, gradients, Jacobians, and modules as functions."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, stack_module_state, vmap

torch.manual_seed(0)


def per_sample_gradients(weight: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Differential privacy: clip the gradient of each sample, then add them up."""

    def loss(weight: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return (torch.tanh(x @ weight) - y).square().sum()

    grads = vmap(grad(loss), in_dims=(None, 0, 0))(weight, x, y)
    norms = grads.flatten(1).norm(dim=1)
    grads *= (0.5 / norms).clamp(max=1.0).view(-1, 1, 1)
    weight -= 0.1 * grads.sum(dim=0)
    return norms, weight.sum()


def batched_windows(signal: Tensor, starts: Tensor) -> Tensor:
    """A window of each signal, from another start in each, smoothed in place."""

    def window(row: Tensor, start: Tensor) -> Tensor:
        part = row.index_select(0, start + torch.arange(4)).clone()
        part[1:] = part[1:] * 0.5 + part[:-1] * 0.5
        return part

    return vmap(window)(signal, starts)


def loss_with_write(x: Tensor, w: Tensor) -> Tensor:
    """An intermediate is written inside of a gradient inside of a vmap."""

    def loss(w: Tensor, x: Tensor) -> Tensor:
        z = x * w
        z[0] = z[0] * 2
        return z.sin().sum()

    return vmap(grad(loss), in_dims=(None, 0))(w, x)


members = [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)) for _ in range(3)]
shared_form = copy.deepcopy(members[0]).to("meta")
ensemble_params, ensemble_buffers = stack_module_state(members)


def ensemble_mean(x: Tensor, spread: Tensor) -> Tensor:
    """Several models at once, by a vmap over their parameters."""

    def one(params: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        return functional_call(shared_form, (params, buffers), (x,))

    outputs = vmap(one)(ensemble_params, ensemble_buffers)
    spread.copy_(outputs.std(dim=0).squeeze(-1))
    return outputs.mean(dim=0)


def pairwise_kernel(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """Nested vmaps over two sets, written into a matrix that is given."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-(a - b).square().sum() / 2)

    out.copy_(vmap(lambda a: vmap(lambda b: kernel(a, b))(y))(x))
    out.diagonal().add_(0.5)
    return out @ out.t()


def batched_argument_is_written(x: Tensor, v: Tensor) -> Tensor:
    vmap(lambda row, other: row.add_(other), in_dims=(0, None))(x, v)
    return x * 2


def tangent_of_written_slice(x: Tensor) -> tuple[Tensor, Tensor]:
    def doubled_behind(v: Tensor) -> Tensor:
        h = v.sin()
        h[1:].mul_(2)
        return h

    return jvp(doubled_behind, (x,), (torch.ones_like(x),))  # type: ignore[return-value]


INPUTS = {
    "per_sample_gradients": lambda: (torch.randn(3, 2), torch.randn(4, 3), torch.randn(4, 2)),
    "batched_windows": lambda: (torch.arange(24.0).reshape(3, 8), torch.tensor([0, 2, 4])),
    "loss_with_write": lambda: (torch.randn(4, 3), torch.randn(3)),
    "ensemble_mean": lambda: (torch.randn(5, 3), torch.zeros(5)),
    "pairwise_kernel": lambda: (
        (points := torch.arange(6.0).reshape(3, 2)),
        points.clone(),
        torch.zeros(3, 3),
    ),
    "batched_argument_is_written": lambda: (torch.randn(3, 4), torch.randn(4)),
    "tangent_of_written_slice": lambda: torch.randn(4),
}
