"""Inductor scatters a number from a tensor that is as large as the operand, not as the index."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import LOWERINGS, mends, run_in_eager

OP = torch.ops.aten.scatter.value_reduce


@mends(LOWERINGS, keys=(OP,))
def mended(original: Any, *args: Any, **kwargs: Any) -> Any:
    """The kernel of eager scatters the number."""
    return run_in_eager(OP, *args, **kwargs)


BUG = KnownBug(
    "long-scatter-of-number",
    "Inductor raises RuntimeError for x.scatter(0, i, 1, reduce='add') if i is longer than x",
    "",
    program_of(
        """
        v0 = aten.zeros_like.default(x1)
        v1 = aten.scatter.value_reduce(x0, 0, v0, 1, reduce='add')
        return (v1,)
        """,
        view(1),
        view(2, dtype=torch.int64),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "scatter", "scatter_"),
    rank=770,
)
