"""Operators that people register themselves, with `torch.library`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd


@custom_op("samples::rotate_rows", mutates_args=())
def rotate_rows(x: Tensor, by: int) -> Tensor:
    return torch.cat([x[by:], x[:by]]).contiguous()


@rotate_rows.register_fake
def _(x: Tensor, by: int) -> Tensor:
    return torch.empty_like(x)


@custom_op("samples::accumulate", mutates_args=("total", "count"))
def accumulate(total: Tensor, count: Tensor, x: Tensor, scale: float) -> None:
    total.add_(x, alpha=scale)
    count.add_(1)


@accumulate.register_fake
def _(total: Tensor, count: Tensor, x: Tensor, scale: float) -> None:
    return None


@custom_op("samples::quantize_into", mutates_args=("out",))
def quantize_into(x: Tensor, out: Tensor) -> Tensor:
    """Write the integers into `out`, and return the scale."""
    scale = x.abs().amax() / 127
    out.copy_((x / scale).round().to(torch.int8))
    return scale


@quantize_into.register_fake
def _(x: Tensor, out: Tensor) -> Tensor:
    return x.new_empty(())


@custom_op("samples::soft_threshold", mutates_args=())
def soft_threshold(x: Tensor, amount: float) -> tuple[Tensor, Tensor]:
    kept = x.abs() > amount
    return torch.where(kept, x - amount * x.sign(), torch.zeros_like(x)), kept


@soft_threshold.register_fake
def _(x: Tensor, amount: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _threshold_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])


def _threshold_backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None]:
    (kept,) = ctx.saved_tensors
    return grad * kept, None


register_autograd("samples::soft_threshold", _threshold_backward, setup_context=_threshold_setup)


# --- functions that call them ---------------------------------------------------------------------


def shift_and_mix(x: Tensor, state: Tensor) -> Tensor:
    """A functional operator between in-place calls."""
    state.mul_(0.5).add_(x)
    mixed = rotate_rows(state, 1)
    mixed.sub_(state)
    return rotate_rows(mixed, 2)


def weighted_accumulation(total: Tensor, count: Tensor, batches: list[Tensor]) -> Tensor:
    """An operator that writes two of its arguments and returns nothing."""
    for number, batch in enumerate(batches):
        accumulate(total[:2], count, batch, 1.0 / (number + 1))
    return total / count


def quantize_pairs(pages: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """An operator with an out argument that is a view: two pages of one buffer."""
    first = quantize_into(x, pages[0])
    second = quantize_into(x.neg() * 0.5, pages[1])
    restored = pages.float()
    restored[0] *= first
    restored[1] *= second
    return restored, torch.stack([first, second])


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


def threshold_with_gradient(x: Tensor) -> tuple[Tensor, Tensor]:
    """The backward that is registered for an operator."""
    x = x.detach().requires_grad_()
    shrunk, kept = soft_threshold(x * 2, 0.3)
    (slope,) = torch.autograd.grad(shrunk.square().sum(), x)
    return slope, kept


INPUTS = {
    "shift_and_mix": lambda: (torch.randn(4, 2), torch.randn(4, 2)),
    "weighted_accumulation": lambda: (
        torch.zeros(3, 2),
        torch.tensor(1.0),
        [torch.randn(2, 2) for _ in range(3)],
    ),
    "quantize_pairs": lambda: (torch.zeros(3, 4, dtype=torch.int8), torch.linspace(-1, 2, 4)),
    "sparse_coding": lambda: (torch.randn(4), torch.randn(3, 4), torch.randn(3)),
    "threshold_with_gradient": lambda: torch.tensor([0.1, -0.4, 0.9, -0.05]),
}
