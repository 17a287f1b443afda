"""What is computed from a view of another item size is computed after a later write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from corpus.known_bug import KnownBug, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """A view of another item size is copied at once.

    Such a view is made by a kernel of eager, so Inductor has another name for its memory. Before a
    write, `mark_buffer_mutated` computes what reads the written tensor by its own name only.
    """
    from torch._inductor import lowering  # noqa: PLC0415 - takes two seconds

    name = "to_dtype_bitcast"
    original = getattr(lowering, name)

    def to_dtype_bitcast(x: Any, dtype: torch.dtype, **options: Any) -> Any:
        viewed = original(x, dtype, **options)
        if x.get_dtype().itemsize == dtype.itemsize:
            return viewed
        copied = lowering.clone(viewed)
        copied.realize()
        return copied

    with mock.patch.object(lowering, name, to_dtype_bitcast):
        yield


BUG = KnownBug(
    "dtype-view-read-late",
    "a value computed from a view of another item size sees a later write to the viewed tensor",
    "https://github.com/pytorch/pytorch/issues/198101",
    written(
        """
        v0 = aten.view.dtype(x0, torch.int16)
        v1 = aten.add.Scalar(v0, 1)
        v2 = aten.index_select.default(v1, 0, x1)
        v3 = aten.view.dtype(v2, torch.int32)
        aten.index_put_.default(x0, [x2], v3)
        v4 = aten.mul.Scalar(v1, 2)
        return (v4,)
        """,
        view(2, dtype=torch.int32),
        view(2, dtype=torch.int64),
        view(1, dtype=torch.int64),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: any("view.dtype" in call.op for call in program.instructions),
)
