"""The functional `normal` draws into a dense copy, for which the kernel has another algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_kernel

# `normal_kernel` fills contiguous tensors of this many elements at once (DistributionTemplates.h).
AT_ONCE = 16


@mends_kernel("normal_", "Functionalize")
def mended(original: Callable[..., Any], x: torch.Tensor, *args: Any) -> torch.Tensor:
    """The numbers of a tensor with gaps are drawn one by one, in memory order.

    On the CPU, the kernel draws so for what is not contiguous, and for a few elements.
    """
    in_memory_order = x.permute(sorted(range(x.dim()), key=x.stride, reverse=True))
    if in_memory_order.is_contiguous():
        original(x, *args)
        return x
    count = math.prod(x.shape)
    parts = [x.new_empty(min(AT_ONCE - 1, count - at)) for at in range(0, count, AT_ONCE - 1)]
    for part in parts:
        part.normal_(*args)
    in_memory_order.copy_(torch.cat(parts).reshape(in_memory_order.shape))
    return x


BUG = KnownBug(
    "normal-of-strided",
    "normal_ of a tensor with gaps draws other numbers, since it is functionalized on a dense copy",
    "",
    program_of(
        """
        aten.normal_.default(x0)
        return ()
        """,
        view(16, strides=(2,)),
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "normal_"),
    rank=180,
)
