"""An operand of `cat` is computed in the memory of the result, and a write changes both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The result of `cat` gets a copy of each operand.

    `ConcatKernel.realize_into` gives an operand the memory of its part of the result, whoever else
    uses the operand. A write into either that was put back in place then changes the other.
    """
    from torch._inductor import ir  # noqa: PLC0415 - takes two seconds

    original: Any = ir.ConcatKernel.__dict__["realize_into"].__func__
    copying: list[bool] = []  # the original calls itself, for a copy that nothing else uses

    def realize_into(cls: Any, src: Any, dst: Any, *rest: Any, **options: Any) -> Any:
        if copying:
            return original(cls, src, dst, *rest, **options)
        copying.append(True)
        try:
            copied = ir.Pointwise.create(
                device=src.get_device(),
                dtype=src.get_dtype(),
                inner_fn=src.make_loader(),
                ranges=src.get_size(),
            )
            return original(cls, copied, dst, *rest, **options)
        finally:
            copying.pop()

    with mock.patch.object(ir.ConcatKernel, "realize_into", classmethod(realize_into)):
        yield


BUG = KnownBug(
    "cat-input-written",
    "a write into an operand of cat also changes the result, and the other way round",
    "https://github.com/pytorch/pytorch/issues/177821",
    written(
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
)
