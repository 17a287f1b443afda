"""The operators of `functions_custom_operators`, registered once in a process.

The files of functions run anew for each world. An operator that is registered anew lets torch 2.13
call, now and then, the one that is gone: the process dies of SIGSEGV.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd


@custom_op("people::rotate_rows", mutates_args=())
def rotate_rows(x: Tensor, by: int) -> Tensor:
    return torch.cat([x[by:], x[:by]]).contiguous()


@rotate_rows.register_fake
def _(x: Tensor, by: int) -> Tensor:
    return torch.empty_like(x)


@custom_op("people::accumulate", mutates_args=("total", "count"))
def accumulate(total: Tensor, count: Tensor, x: Tensor, scale: float) -> None:
    total.add_(x, alpha=scale)
    count.add_(1)


@accumulate.register_fake
def _(total: Tensor, count: Tensor, x: Tensor, scale: float) -> None:
    return None


@custom_op("people::quantize_into", mutates_args=("out",))
def quantize_into(x: Tensor, out: Tensor) -> Tensor:
    """Write the integers into `out`, and return the scale."""
    scale = x.abs().amax() / 127
    out.copy_((x / scale).round().to(torch.int8))
    return scale


@quantize_into.register_fake
def _(x: Tensor, out: Tensor) -> Tensor:
    return x.new_empty(())


@custom_op("people::soft_threshold", mutates_args=())
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


register_autograd("people::soft_threshold", _threshold_backward, setup_context=_threshold_setup)
