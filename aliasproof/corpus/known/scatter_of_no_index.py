"""Inductor's rewrite of a scatter into a constant asserts that the index has as many dimensions."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("joint_graph", "scatter_upon_const_tensor")
def mended(match: Any) -> bool:
    """The rewrite is left to an index with the dimensions of the result: an empty one has fewer."""
    dims: int = match.kwargs["selector"].meta["val"].dim()
    return dims == len(match.kwargs["shape"])


BUG = KnownBug(
    "scatter-of-no-index",
    "torch.zeros(1, 1).scatter(0, torch.empty(0, dtype=torch.int64), 0) cannot be compiled",
    "",
    program_of(
        """
        v0 = aten.full.default([1, 1], 0.0)
        v1 = aten.scatter.value(v0, 0, x0, 0)
        return (v1,)
        """,
        view(0, dtype=torch.int64),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "scatter", "scatter_"),
    rank=1070,
)
