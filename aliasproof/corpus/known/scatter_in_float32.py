"""Inductor computes `full(...).scatter(...)` with numbers in float32, whatever the dtype is."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("joint_graph", "scatter_upon_const_tensor")
def mended(match: Any) -> bool:
    """The rewrite is left to tensors that float32 can represent.

    It is `where(mask, value, background)` of two Python numbers, which is in float32, and the
    result is converted.
    """
    dtype = match.kwargs["dtype"]
    return dtype in (torch.float32, torch.float16, torch.bfloat16, torch.bool)


BUG = KnownBug(
    "scatter-in-float32",
    "Inductor rounds the value that is scattered into a constant float64 tensor to float32",
    "",
    program_of(
        """
        v0 = aten.zeros_like.default(x0)
        v1 = aten.scatter.value(v0, 0, x1, 16777217.0)
        return (v1,)
        """,
        view(2, dtype=torch.float64),
        view(1, dtype=torch.int64),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "scatter", "scatter_"),
    rank=530,
)
