"""The functional `bernoulli` draws in the order of indices, and `bernoulli_` in memory order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_kernel

DROPOUTS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")


@mends_kernel("bernoulli_.float", "Functionalize")
def mended(original: Callable[..., Any], x: torch.Tensor, *args: Any) -> torch.Tensor:
    """The tensor is written through a view whose indices are in memory order.

    The result of `bernoulli.p` is contiguous whatever its operand is.
    """
    original(x.permute(sorted(range(x.dim()), key=x.stride, reverse=True)), *args)
    return x


BUG = KnownBug(
    "bernoulli-in-order",
    "bernoulli_ becomes bernoulli, which draws the numbers of a transposed tensor in another order",
    "",
    program_of(
        """
        aten.bernoulli_.float(x0, 0.5)
        return ()
        """,
        view(2, 2, strides=(1, 2)),
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(
        program, "bernoulli_", *DROPOUTS, *(f"{name}_" for name in DROPOUTS)
    ),
    rank=170,
)
