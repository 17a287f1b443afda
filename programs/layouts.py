"""Arithmetic on layouts: dense strides, how far a view reaches, how much a storage has room for.

All in elements.
"""

from __future__ import annotations

import torch

from programs.program import Argument


def capacity(tensor: torch.Tensor) -> int:
    """How many elements of the tensor's dtype its storage holds."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def dense_strides(sizes: tuple[Argument, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides, running = [], 1
    for size in reversed(sizes):
        assert isinstance(size, int)
        strides.append(running)
        running *= max(size, 1)
    return tuple(reversed(strides))


def reach(sizes: tuple[Argument, ...], strides: tuple[Argument, ...]) -> int:
    """How many elements a view without offset spans, from its first to its last."""
    last = 0
    for size, stride in zip(sizes, strides, strict=True):
        assert isinstance(size, int)
        assert isinstance(stride, int)
        if size == 0:
            return 0
        last += (size - 1) * stride
    return last + 1
