"""Operators that people register themselves, with `torch.library`."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.people.people_operators import (
    accumulate,
    quantize_into,
    soft_threshold,
)


def shift_and_mix(x: Tensor, state: Tensor) -> Tensor:
    """A functional operator between in-place calls."""
    state.mul_(0.5).add_(x)
    mixed = torch.ops.people.rotate_rows(state, 1)
    mixed.sub_(state)
    return torch.ops.people.rotate_rows(mixed, 2)


def shift_and_mix_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 2), torch.randn(4, 2)


def weighted_accumulation(total: Tensor, count: Tensor, batches: list[Tensor]) -> Tensor:
    """An operator that writes two of its arguments and returns nothing."""
    for number, batch in enumerate(batches):
        accumulate(total[:2], count, batch, 1.0 / (number + 1))
    return total / count


def weighted_accumulation_inputs() -> tuple[Tensor, Tensor, list[Tensor]]:
    return torch.zeros(3, 2), torch.tensor(1.0), [torch.randn(2, 2) for _ in range(3)]


def quantize_pairs(pages: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """An operator with an out argument that is a view: two pages of one buffer."""
    first = quantize_into(x, pages[0])
    second = quantize_into(x.neg() * 0.5, pages[1])
    restored = pages.float()
    restored[0] *= first
    restored[1] *= second
    return restored, torch.stack([first, second])


def quantize_pairs_inputs() -> tuple[Tensor, Tensor]:
    return torch.zeros(3, 4, dtype=torch.int8), torch.linspace(-1, 2, 4)


def sparse_coding(code: Tensor, dictionary: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
    """Iterative shrinkage: two outputs of an operator, of which one counts."""
    active = torch.zeros((), dtype=torch.long)
    for _ in range(2):
        residual = dictionary @ code - signal
        code -= 0.1 * (dictionary.t() @ residual)
        shrunk, kept = soft_threshold(code, 0.05)
        code.copy_(shrunk)
        active += kept.sum()
    return dictionary @ code, active


def sparse_coding_inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(4), torch.randn(3, 4), torch.randn(3)


def threshold_with_gradient(x: Tensor) -> tuple[Tensor, Tensor]:
    """The backward that is registered for an operator."""
    x = x.detach().requires_grad_()
    shrunk, kept = soft_threshold(x * 2, 0.3)
    (slope,) = torch.autograd.grad(shrunk.square().sum(), x)
    return slope, kept


def threshold_with_gradient_inputs() -> Tensor:
    return torch.tensor([0.1, -0.4, 0.9, -0.05])
