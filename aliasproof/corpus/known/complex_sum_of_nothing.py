"""Inductor's sum of complex tensors without elements raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import DECOMPOSITIONS, mends

aten = torch.ops.aten


@mends(*DECOMPOSITIONS, keys=(aten.add.Tensor,))
def mended(original: Callable[..., Any], x: Any, y: Any, **kwargs: Any) -> Any:
    """The operator is not decomposed where an operand has no elements.

    Torch adds the parts as real numbers, and takes a view of the sum as complex numbers. The
    strides of a tensor without elements need not allow that.
    """
    if any(isinstance(operand, torch.Tensor) and operand.numel() == 0 for operand in (x, y)):
        return NotImplemented
    return original(x, y, **kwargs)


BUG = KnownBug(
    "complex-sum-of-nothing",
    "Inductor's sum of complex tensors of sizes (1, 0) raises 'stride must be divisible by 2'",
    "https://github.com/pytorch/pytorch/issues/190274",
    program_of(
        """
        v0 = aten.add.Tensor(x0, x0)
        return (v0,)
        """,
        view(1, 0, dtype=torch.complex64),
    ),
    ("aot:decompose", "inductor-fx"),
    ("2.13", "2.15"),
    mended,
    # Sizes and dtypes can also be arguments.
    plausible=lambda program: "complex" in repr(program),
    rank=400,
)
