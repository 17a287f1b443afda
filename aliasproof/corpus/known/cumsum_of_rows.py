"""Inductor expands the cumsum of one row of a constant tensor, so the result overlaps itself."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("post_grad", "pointless_cumsum_replacement")
def mended(match: Any) -> bool:
    """The rewrite is left to tensors with fewer than two dimensions: they need no `expand`."""
    return len(match.kwargs["shape"]) < 2


BUG = KnownBug(
    "cumsum-of-rows",
    "the cumsum of a constant is one row, expanded, so a write to the output changes all rows",
    "",
    program_of(
        """
        v0 = aten.ones_like.default(x0)
        v1 = aten.cumsum.default(v0, 0)
        return (v1,)
        """,
        view(1, 2, dtype=torch.int64),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "cumsum", "cumsum_"),
    rank=440,
)
