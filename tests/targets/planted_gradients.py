"""A planted mistake in gradients."""

from __future__ import annotations

import torch
from torch import Tensor


class Doubled(torch.autograd.Function):
    """A planted mistake: the gradient is twice what it should be."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *given: Tensor) -> Tensor:
        return given[0] * 2
