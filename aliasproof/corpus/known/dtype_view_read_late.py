"""What is computed from a view of another item size is computed after a later write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from aliasproof.corpus.known_bug import KnownBug, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """What reads a view is computed before the viewed tensor is written.

    A kernel of eager makes a view of another item size, so Inductor has another name for its
    memory. Before a write, `mark_buffer_mutated` computes only what reads the tensor by its own
    name.
    """
    from torch._inductor.graph import GraphLowering  # noqa: PLC0415 - takes two seconds

    name = "mark_buffer_mutated"
    original = getattr(GraphLowering, name)

    def mark(self: Any, written_name: str) -> None:
        for buffer in list(self.buffers):
            if written_name in buffer.get_inputs_that_alias_output():
                mark(self, buffer.get_name())
        original(self, written_name)

    with mock.patch.object(GraphLowering, name, mark):
        yield


BUG = KnownBug(
    "dtype-view-read-late",
    "a value computed from a view of another item size sees a later write to the viewed tensor",
    "https://github.com/pytorch/pytorch/issues/198101",
    written(
        """
        v0 = aten.view.dtype(x0, torch.int32)
        v1 = aten.add.Scalar(v0, 1)
        v2 = aten.sum.default(v1)
        aten.index_put_.default(x0, [x1], v2)
        v3 = aten.mul.Scalar(v1, 2)
        return (v3,)
        """,
        view(2, dtype=torch.int64),
        view(1, dtype=torch.int64),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: any("view.dtype" in call.op for call in program.instructions),
)
