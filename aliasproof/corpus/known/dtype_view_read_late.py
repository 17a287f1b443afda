"""What is computed from a view of another item size is computed after a later write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view, views_dtype
from aliasproof.corpus.mends import mends


@mends("torch._inductor.graph:GraphLowering.mark_buffer_mutated")
def mended(original: Callable[..., Any], self: Any, written_name: str) -> None:
    """What reads a view is computed before the viewed tensor is written.

    A kernel of eager makes a view of another item size, so Inductor has another name for its
    memory. Before a write, `mark_buffer_mutated` computes only what reads the tensor by its own
    name.
    """
    for buffer in list(self.buffers):
        if written_name in buffer.get_inputs_that_alias_output():
            self.mark_buffer_mutated(buffer.get_name())
    original(self, written_name)


BUG = KnownBug(
    "dtype-view-read-late",
    "a value computed from a view of another item size sees a later write to the viewed tensor",
    "https://github.com/pytorch/pytorch/issues/198101",
    program_of(
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
    plausible=views_dtype,
    vector_bits=(256, 512),
    rank=690,
)
