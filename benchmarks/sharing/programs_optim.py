"""Optimizer steps written by hand, on tensors and on views of one flat buffer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.sharing.shared_arguments import floats, group, positives, program, separate


@program(group(floats(5), kinds="separate overlap same disjoint"), "nn")
def sgd_step(p: Tensor, g: Tensor) -> Tensor:
    p.sub_(g.clone(), alpha=0.1)
    return p


@program(group(floats(5), count=3, kinds="separate disjoint apart"), "nnn")
def momentum_step(p: Tensor, g: Tensor, m: Tensor) -> Tensor:
    m.mul_(0.9).add_(g)
    p.add_(m, alpha=-0.1)
    return m.norm()


@program(group(positives(5), count=4, kinds="separate disjoint apart"), "nnnn")
def adam_step(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> None:
    m.lerp_(g, 0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.1)


@program(group(positives(4), count=3, kinds="separate disjoint same apart"), "nnn")
def adagrad_with_decay(p: Tensor, g: Tensor, s: Tensor) -> Tensor:
    g.add_(p, alpha=0.01)
    s.addcmul_(g, g)
    p.addcdiv_(g, s.sqrt(), value=-0.1)
    return s


@program(group(floats(4, 3), kinds="separate disjoint apart"), "nn")
def adafactor_statistics(p: Tensor, g: Tensor) -> Tensor:
    square = g.square()
    row, col = square.mean(1, keepdim=True), square.mean(0, keepdim=True)
    scale = (row * col / square.mean()).rsqrt_()
    p.sub_(g.mul_(scale))
    return scale


@program(group(floats(4), kinds="separate overlap same apart"), "nn")
def clip_norms_in_place(a: Tensor, b: Tensor) -> Tensor:
    total = (a.square().sum() + b.square().sum()).sqrt()
    factor = (1.0 / total).clamp(max=1.0)
    a.mul_(factor)
    b.mul_(factor)
    return total


@program(separate(floats(3, 2), floats(3), floats(4, 2)), "nnn")
def train_step_with_manual_gradient(w: Tensor, b: Tensor, x: Tensor) -> Tensor:
    out = x @ w.t() + b
    grad = 2 * out / out.numel()
    w.sub_(grad.t() @ x)
    b.sub_(grad.sum(0))
    return out.square().mean()


@program(separate(floats(12), floats(2, 3)), "n")
def flat_parameters_unpacked(flat: Tensor, x: Tensor) -> Tensor:
    w, b = flat[:9].view(3, 3), flat[9:]
    out = x @ w + b
    w.sub_(x.t() @ out)
    b.sub_(out.sum(0))
    return out


@program(separate(floats(4), floats(4), count=3), "ll")
def foreach_scale_and_add(a: Tensor, b: Tensor) -> list[Tensor]:
    with torch.no_grad():
        torch._foreach_mul_([a, b], 0.5)
        torch._foreach_add_([a, b], [b.clone(), a.clone()])
    return [a * 2, b * 2]


@program(group(floats(4), kinds="separate disjoint apart same"), "nn")
def sign_momentum_step(p: Tensor, m: Tensor) -> Tensor:
    update = (m * 0.9 + p * 0.1).sign_()
    p.mul_(0.99).sub_(update, alpha=0.01)
    m.lerp_(p.sign(), 0.1)
    return update


@program(group(floats(3, 3), kinds="separate disjoint apart"), "nn")
def orthogonalized_momentum(p: Tensor, g: Tensor) -> Tensor:
    x = g / (g.norm() + 1e-7)
    for _ in range(2):
        a = x @ x.t()
        x = 1.5 * x - 0.5 * (a @ x)
    p.add_(x, alpha=-0.1)
    g.zero_()
    return p.t()


class LearnsInForward(nn.Module):
    """Takes a gradient step on its own weight after each forward pass."""

    momentum: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("momentum", torch.zeros(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        out = x @ self.weight.detach().clone()
        with torch.no_grad():
            self.momentum.mul_(0.9).add_(x.t() @ out)
            self.weight.sub_(self.momentum, alpha=0.1)
        return out + x @ self.weight


@program(separate(floats(2, 3), count=3), "x", factory=True)
def learns_in_forward() -> nn.Module:
    return LearnsInForward()


@program(group(floats(4), count=3, kinds="separate disjoint same overlap"), "nnn")
def lookahead_weights(fast: Tensor, slow: Tensor, g: Tensor) -> Tensor:
    fast -= g.clone() * 0.1
    slow.add_((fast - slow) * 0.5)
    fast.copy_(slow.clone())
    return fast - slow
