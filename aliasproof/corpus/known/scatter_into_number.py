"""Inductor fails on a scatter into a constant tensor without dimensions."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("joint_graph", "scatter_upon_const_tensor")
def mended(match: Any) -> bool:
    """The rewrite is left to tensors with dimensions. Its condition asks for the size of one."""
    return len(match.kwargs["shape"]) > 0


BUG = KnownBug(
    "scatter-into-number",
    "Inductor raises IndexError for a scatter into a constant tensor without dimensions",
    "",
    program_of(
        """
        v0 = aten.zeros_like.default(x0)
        v1 = aten.scatter.value(v0, 0, x1, 1)
        return (v1,)
        """,
        view(),
        view(dtype=torch.int64),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "scatter", "scatter_"),
    rank=540,
)
