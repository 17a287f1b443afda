"""Arithmetic on layouts: dense strides, the extent of a view, the capacity of a storage.

All units are elements.
"""

from __future__ import annotations

import torch

from aliasproof.programs.program import Argument


def capacity(tensor: torch.Tensor) -> int:
    """The number of elements of the tensor's dtype that fit into its storage."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def dense_strides(sizes: tuple[Argument, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides, running = [], 1
    for size in reversed(sizes):
        assert isinstance(size, int)
        strides.append(running)
        running *= max(size, 1)  # torch also gives a tensor with a size of 0 strides of 1 or more
    return tuple(reversed(strides))


def reach(sizes: tuple[Argument, ...], strides: tuple[Argument, ...]) -> int:
    """The number of elements that a view without offset spans, from its first to its last."""
    last = 0
    for size, stride in zip(sizes, strides, strict=True):
        assert isinstance(size, int)
        assert isinstance(stride, int)
        if size == 0:  # an empty view needs no storage, even with large strides
            return 0
        last += (size - 1) * stride
    return last + 1
