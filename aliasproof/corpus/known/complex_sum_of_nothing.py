"""Inductor's sum of complex tensors without elements raises."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from aliasproof.corpus.inductor_passes import decomposed
from aliasproof.corpus.known_bug import KnownBug, view, written

aten = torch.ops.aten


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The operator is not decomposed where an operand has no elements.

    Torch adds the parts as real numbers, and takes a view of the sum as complex numbers. The
    strides of a tensor without elements need not allow that.
    """

    def add(original: Callable[..., Any], x: Any, y: Any, **kwargs: Any) -> Any:
        if any(isinstance(each, torch.Tensor) and each.numel() == 0 for each in (x, y)):
            return NotImplemented
        return original(x, y, **kwargs)

    with decomposed(aten.add.Tensor, add):
        yield


BUG = KnownBug(
    "complex-sum-of-nothing",
    "Inductor's sum of complex tensors of sizes (1, 0) raises 'stride must be divisible by 2'",
    "https://github.com/pytorch/pytorch/issues/190274",
    written(
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
)
