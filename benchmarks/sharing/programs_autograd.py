"""Custom autograd functions, checkpointing and gradient calls around in-place writes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from benchmarks.sharing.shared_arguments import floats, group, layouts, positives, program, separate


class ScaleInPlace(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        x.mul_(factor)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.factor, None


@program(separate(floats(4)), "x")
def mark_dirty_on_input(x: Tensor) -> Tensor:
    return ScaleInPlace.apply(x, 2.0) + 1


@program(layouts(floats(4), kinds="whole offset strided"), "x")
def mark_dirty_on_intermediate(x: Tensor) -> Tensor:
    y = x * 3
    ScaleInPlace.apply(y, 0.5)
    return y.sin()


class StraightThroughRound(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clone()
        y.round_()
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program(layouts(floats(3, 4)), "x")
def straight_through_round(x: Tensor) -> Tensor:
    return StraightThroughRound.apply(x * 3) * x


class ReverseGradient(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.neg()


@program(layouts(floats(3, 4)), "x")
def reverse_gradient_view(x: Tensor) -> Tensor:
    return ReverseGradient.apply(x) * 2


@program(layouts(floats(3, 4)), "x")
def reverse_gradient_then_write(x: Tensor) -> Tensor:
    y = ReverseGradient.apply(x * 2)
    return y.clone().add_(1)


class InPlaceLeakyRelu(Function):
    """Recovers the input from the output, as memory saving activations do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x[x < 0] *= 0.1
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        grad = grad.clone()
        grad[y < 0] *= 0.1
        return grad


@program(separate(floats(3, 4), floats(4, 4)), "xl")
def in_place_activation_function(x: Tensor, w: Tensor) -> Tensor:
    return InPlaceLeakyRelu.apply(x @ w).sum(0)


class SaveAndWriteBuffer(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seen: Tensor) -> Tensor:
        seen.add_(x.detach().abs().sum())
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return 2 * x * grad, None


@program(separate(floats(4), floats(1), count=3), "xn")
def function_writes_statistics(x: Tensor, seen: Tensor) -> Tensor:
    return SaveAndWriteBuffer.apply(x, seen).exp()


class TwoOutputs(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x)
        low = x.clamp(max=0)
        high = x.clone()
        high.sub_(low)
        return low, high

    @staticmethod
    def backward(ctx: Any, low: Tensor, high: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        out = low.clone()
        out[x > 0] = high[x > 0]
        return out


@program(layouts(floats(3, 4)), "x")
def function_with_two_outputs(x: Tensor) -> Tensor:
    low, high = TwoOutputs.apply(x.sin())
    return low * 2 + high


def block_in_place(x: Tensor, w: Tensor) -> Tensor:
    h = x @ w
    h[:, 0] += 1
    h.relu_()
    return h


@program(separate(floats(3, 4), floats(4, 4)), "xl")
def checkpoint_with_in_place_block(x: Tensor, w: Tensor) -> Tensor:
    h = checkpoint(block_in_place, x, w, use_reentrant=False)
    return checkpoint(block_in_place, h, w, use_reentrant=False)


@program(separate(floats(3, 4), floats(4, 4)), "xl")
def checkpoint_of_mutated_input(x: Tensor, w: Tensor) -> Tensor:
    y = x * 2
    y[0].zero_()
    out = checkpoint(block_in_place, y, w, use_reentrant=False)
    return out.add_(x)


@program(group(floats(4, 4), floats(3, 4), kinds="separate same overlap apart"), "xxl")
def checkpoint_two_weights(v: Tensor, w: Tensor, x: Tensor) -> Tensor:
    h = checkpoint(block_in_place, x, v, use_reentrant=False)
    h.mul_(0.5)
    return checkpoint(block_in_place, h, w, use_reentrant=False)


@program(layouts(floats(3, 2)), "n")
def autograd_grad_inside(x: Tensor) -> Tensor:
    y = x.detach().clone()
    with torch.enable_grad():
        y.requires_grad_()
        (grad,) = torch.autograd.grad((y**3).sum(), y)
    grad[0].zero_()
    x.sub_(grad)
    return x


@program(separate(positives(4)), "x")
def gradient_penalty(x: Tensor) -> Tensor:
    return (x.log().mul_(x)).sum() ** 2


@program(layouts(floats(4), floats(4), kinds="whole offset strided"), "xx")
def write_after_saved_for_other(x: Tensor, y: Tensor) -> Tensor:
    z = x + y
    x.mul_(2)
    y.zero_()
    return z * z


@program(group(floats(4), kinds="separate overlap shifted disjoint"), "xx")
def add_saves_nothing_then_write(x: Tensor, y: Tensor) -> Tensor:
    out = x.clone().add_(y)
    y.mul_(3)
    return out + x


class ClipGradient(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> Tensor:
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.clamp(-ctx.limit, ctx.limit), None


@program(layouts(floats(4, 3)), "x")
def clip_gradient_then_row_write(x: Tensor) -> Tensor:
    y = ClipGradient.apply(x, 0.5)
    z = y * 2
    z[1] = y[0]
    return z
