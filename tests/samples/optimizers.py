"""Steps of optimizers: by hand, of `torch.optim`, and what people do with gradients around them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

torch.manual_seed(0)


def momentum_step(params: list[Tensor], grads: list[Tensor], velocities: list[Tensor]) -> None:
    """SGD with Nesterov momentum and weight decay."""
    for param, grad, velocity in zip(params, grads, velocities, strict=True):
        grad = grad.add(param, alpha=1e-2)
        velocity.mul_(0.9).add_(grad)
        param.add_(grad.add(velocity, alpha=0.9), alpha=-0.1)


def foreach_adam(
    params: list[Tensor],
    grads: list[Tensor],
    averages: list[Tensor],
    squares: list[Tensor],
    step: Tensor,
) -> Tensor:
    step += 1
    torch._foreach_lerp_(averages, grads, 0.1)
    torch._foreach_mul_(squares, 0.999)
    torch._foreach_addcmul_(squares, grads, grads, value=0.001)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, 1e-8)
    size = -0.01 * (1 - 0.999**step).sqrt() / (1 - 0.9**step)
    updates = torch._foreach_div(averages, roots)
    torch._foreach_mul_(updates, size)
    torch._foreach_add_(params, updates)
    return step.clone()


def foreach_adam_inputs() -> tuple[object, ...]:
    shapes = ((3, 4), (5,))
    lists = [[torch.rand(shape) for shape in shapes] for _ in range(4)]
    return (*lists, torch.tensor(3.0))


def sparse_adagrad(table: Tensor, sums: Tensor, rows: Tensor, grads: Tensor) -> Tensor:
    """Rows of an embedding table, of which some occur twice."""
    unique, inverse = torch.tensor([0, 2, 3]), torch.bucketize(rows, torch.tensor([0, 2, 3]))
    summed = torch.zeros(3, grads.shape[1]).index_add_(0, inverse, grads)
    sums.index_add_(0, unique, summed.pow(2).mean(dim=1))
    step = 0.1 / (sums[unique].sqrt() + 1e-10)
    table.index_add_(0, unique, summed * step.unsqueeze(1), alpha=-1)
    return table.norm(dim=1)


def unscale_and_skip(
    params: list[Tensor], grads: list[Tensor], scale: Tensor, growth: Tensor
) -> Tensor:
    """A gradient scaler: unscale, skip the step if a gradient is not finite, move the scale."""
    found = torch.zeros(())
    for grad in grads:
        found = torch.maximum(found, (~grad.isfinite()).any().float())
        grad.div_(scale)
    for param, grad in zip(params, grads, strict=True):
        param.copy_(torch.where(found.bool(), param, param - 0.1 * grad))
    growth.add_(1).mul_(1 - found)
    grown = growth >= 3
    scale.mul_(torch.where(found.bool(), 0.5, torch.where(grown, 2.0, 1.0)))
    growth.masked_fill_(grown, 0)
    return found


def unscale_and_skip_inputs() -> tuple[object, ...]:
    params, grads = [torch.randn(3), torch.randn(2)], [torch.randn(3) * 8, torch.randn(2) * 8]
    return params, grads, torch.tensor(8.0), torch.tensor(2.0)


classifier = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
adamw = torch.optim.AdamW(classifier.parameters(), lr=0.05, weight_decay=0.1)


def train_classifier(x: Tensor, labels: Tensor) -> Tensor:
    adamw.zero_grad()
    loss = F.cross_entropy(classifier(x), labels, label_smoothing=0.1)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(classifier.parameters(), 0.5)
    adamw.step()
    return loss.detach()


INPUTS = {
    "momentum_step": lambda: tuple([torch.randn(3, 2), torch.randn(4)] for _ in range(3)),
    "foreach_adam": foreach_adam_inputs,
    "sparse_adagrad": lambda: (
        torch.randn(5, 3),
        torch.rand(5),
        torch.tensor([2, 0, 2, 3]),
        torch.randn(4, 3),
    ),
    "unscale_and_skip": unscale_and_skip_inputs,
    "train_classifier": lambda: (torch.randn(6, 4), torch.tensor([0, 2, 1, 1, 0, 2])),
}
