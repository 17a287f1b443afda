"""Writes under no_grad to parameters, buffers and leaves that are then used with gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.sharing.shared_arguments import (
    floats,
    group,
    ints,
    layouts,
    positives,
    program,
    separate,
)


@program(separate(floats(4), floats(4)), "ll")
def ema_of_leaf(average: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        average.mul_(0.9).add_(x, alpha=0.1)
    return (average * x).sum()


@program(separate(floats(4, 3), floats(2, 3)), "lx")
def weight_clamped_then_used(w: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        w.clamp_(-0.5, 0.5)
    return x @ w.t()


@program(separate(floats(4, 3), floats(2, 3)), "lx")
def weight_rows_renormalized(w: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        norms = w.norm(dim=1, keepdim=True)
        w.div_(norms.clamp(min=1.0))
    return F.linear(x, w)


@program(separate(floats(4), floats(4)), "xn")
def used_before_and_after_no_grad_write(x: Tensor, y: Tensor) -> Tensor:
    before = x + 1
    with torch.no_grad():
        x.add_(y)
    return before + x * 3


@program(layouts(floats(4), floats(4), kinds="whole offset strided"), "xx")
def no_grad_write_through_slice(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x[1:3] = y[:2]
    return x * y


@program(group(floats(5), kinds="separate overlap shifted apart"), "pp")
def leaf_parameters_of_one_flat_buffer(w: Tensor, b: Tensor) -> Tensor:
    with torch.no_grad():
        w.mul_(0.5)
    return w * 2 + b


@program(group(floats(5), kinds="overlap separate same disjoint"), "pn")
def leaf_and_plain_alias_written(w: Tensor, flat: Tensor) -> Tensor:
    flat.add_(1)
    return w * w


@program(group(floats(5), kinds="separate disjoint same overlap"), "nx")
def plain_alias_of_non_leaf_written(flat: Tensor, x: Tensor) -> Tensor:
    flat[1:].mul_(2)
    return x * 3 + flat


class SpectralNormLinear(nn.Module):
    u: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.register_buffer("u", F.normalize(torch.randn(4), dim=0))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            v = F.normalize(self.weight.t() @ self.u, dim=0)
            self.u.copy_(F.normalize(self.weight @ v, dim=0))
        sigma = torch.dot(self.u.clone(), self.weight @ v)
        return F.linear(x, self.weight / sigma)


@program(separate(floats(2, 3), count=3), "x", factory=True)
def spectral_norm_linear() -> nn.Module:
    return SpectralNormLinear()


class RunningStatistics(nn.Module):
    mean: Tensor
    var: Tensor
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("var", torch.ones(3))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = x.mean(0), x.var(0, unbiased=False)
        with torch.no_grad():
            self.steps += 1
            self.mean.lerp_(mean, 0.1)
            self.var.mul_(0.9).add_(var, alpha=0.1)
        return (x - mean) / (var + 1e-5).sqrt() + self.mean


@program(layouts(floats(4, 3)), "x", factory=True)
def running_statistics_norm() -> nn.Module:
    return RunningStatistics()


class Codebook(nn.Module):
    """Vector quantization with moving average updates of the codes."""

    codes: Tensor
    count: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(5, 3))
        self.register_buffer("count", torch.ones(5))
        self.register_buffer("total", torch.randn(5, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        index = torch.cdist(x, self.codes).argmin(1)
        hot = F.one_hot(index, 5).to(x.dtype)
        quantized = self.codes[index]
        with torch.no_grad():
            self.count.mul_(0.9).add_(hot.sum(0), alpha=0.1)
            self.total.mul_(0.9).add_(hot.t() @ x, alpha=0.1)
            self.codes.copy_(self.total / self.count[:, None])
        return x + (quantized - x).detach(), F.mse_loss(x, quantized)


@program(separate(floats(6, 3), count=3), "x", factory=True)
def codebook_update() -> nn.Module:
    return Codebook()


class MomentumEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.online = nn.Linear(3, 2)
        self.target = nn.Linear(3, 2).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            pairs = zip(self.online.parameters(), self.target.parameters(), strict=True)
            for p, q in pairs:
                q.data.mul_(0.5).add_(p.data, alpha=0.5)
            key = self.target(x)
        return F.mse_loss(self.online(x), key)


@program(separate(floats(4, 3), count=3), "x", factory=True)
def momentum_encoder() -> nn.Module:
    return MomentumEncoder()


class MaxNormLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.linear.weight.data.copy_(self.linear.weight.data.renorm(2, 0, 0.5))
        self.linear.bias.data.clamp_(min=0)
        return self.linear(x).relu()


@program(layouts(floats(2, 3)), "x", factory=True)
def max_norm_linear() -> nn.Module:
    return MaxNormLinear()


class MaskedWeight(nn.Module):
    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("mask", torch.ones(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.mask[self.weight.abs() < 0.3] = 0
            self.weight *= self.mask  # type: ignore[misc]
        return x @ self.weight


@program(layouts(floats(2, 4)), "x", factory=True)
def pruned_weight() -> nn.Module:
    return MaskedWeight()


class MemoryQueue(nn.Module):
    """A queue of keys with a moving pointer, as in contrastive learning."""

    queue: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", F.normalize(torch.randn(3, 8), dim=0))
        self.pointer = 0

    def forward(self, q: Tensor) -> Tensor:
        logits = q @ self.queue.clone().detach()
        with torch.no_grad():
            self.queue[:, self.pointer : self.pointer + 2] = q.detach().t()
        self.pointer = (self.pointer + 2) % 8
        return logits.logsumexp(1)


@program(separate(floats(2, 3), count=3), "x", factory=True)
def memory_queue() -> nn.Module:
    return MemoryQueue()


class FakeQuantObserver(nn.Module):
    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.tensor(0.0))
        self.register_buffer("high", torch.tensor(0.1))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.low.copy_(torch.minimum(self.low, x.min()))
            self.high.copy_(torch.maximum(self.high, x.max()))
        scale = (self.high - self.low) / 255
        rounded = torch.round((x - self.low) / scale) * scale + self.low
        return x + (rounded - x).detach()


@program(layouts(floats(3, 4)), "x", factory=True)
def fake_quant_observer() -> nn.Module:
    return FakeQuantObserver()


@program(group(positives(4), kinds="separate overlap same disjoint"), "xx")
def detach_write_between_uses(x: Tensor, y: Tensor) -> Tensor:
    a = x + y
    x.detach().mul_(0.5)
    return a + x + y


@program(group(floats(4), kinds="separate same overlap apart"), "ll")
def leaves_updated_in_no_grad(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.sub_(y * 0.5)
        y[1:].mul_(0.5)
    return x * 2 - y


@program(separate(floats(5, 3), ints(4, high=5)), "l")
def embedding_rows_renormalized(table: Tensor, index: Tensor) -> Tensor:
    with torch.no_grad():
        rows = table[index]
        table[index] = rows / rows.norm(dim=1, keepdim=True)
    return F.embedding(index, table)


@program(separate(floats(5, 3), ints(4, high=5)), "l")
def embedding_max_norm(table: Tensor, index: Tensor) -> Tensor:
    return F.embedding(index, table.clone(), max_norm=1.0)


@program(layouts(floats(4), kinds="whole offset strided"), "x")
def swap_with_no_grad_clone(x: Tensor) -> Tensor:
    with torch.no_grad():
        old = x.clone()
        x[:2], x[2:] = old[2:], old[:2]
    return x * old


@program(separate(floats(3, 3)), "l")
def inference_result_written_later(w: Tensor) -> Tensor:
    with torch.no_grad():
        cached = w @ w
    cached.add_(1)
    return cached * w


@program(separate(floats(4), floats(4)), "nl")
def buffer_becomes_differentiable(state: Tensor, w: Tensor) -> Tensor:
    state.mul_(0.5)
    state.add_(w)
    return state * 2


@program(separate(floats(4, 4), floats(4)), "nl")
def row_of_buffer_becomes_differentiable(state: Tensor, w: Tensor) -> Tensor:
    state[1] = w * 2
    state[2].add_(state[1])
    return state.sum(0)
