"""An operand of `cat` is computed in the memory of the result, and a write changes both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends

_COPYING: list[bool] = []  # the original calls itself, for a copy that nothing else uses


@mends("torch._inductor.ir:ConcatKernel.realize_into")
def mended(original: Callable[..., Any], src: Any, dst: Any) -> Any:
    """The result of `cat` gets a copy of each operand.

    `ConcatKernel.realize_into` gives an operand the memory of its part of the result, whoever else
    uses the operand. A write into either that was put back in place then changes the other.
    """
    from torch._inductor import ir  # noqa: PLC0415 - takes two seconds

    if _COPYING:
        return original(src, dst)
    _COPYING.append(True)
    try:
        copied = ir.Pointwise.create(
            device=src.get_device(),
            dtype=src.get_dtype(),
            inner_fn=src.make_loader(),
            ranges=src.get_size(),
        )
        return original(copied, dst)
    finally:
        _COPYING.pop()


BUG = KnownBug(
    "cat-input-written",
    "a write into an operand of cat also changes the result, and the other way round",
    "https://github.com/pytorch/pytorch/issues/177821",
    program_of(
        """
        v0 = aten.add.Tensor(x0, x0)
        v1 = aten.cat.default([v0, x0])
        aten.index_put_.default(v0, [x1], x2)
        v2 = aten.mul.Tensor(v0, v0)
        return v1, v2
        """,
        view(2),
        view(1, dtype=torch.int64),
        view(1),
    ),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "cat", "stack"),
    rank=660,
)
