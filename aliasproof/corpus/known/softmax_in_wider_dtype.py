"""Inductor's rewrite of `s - s.amax()` for a cast product forgets the cast of the result."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("joint_graph", "div_softmax_pattern", "mul_softmax_pattern")
def mended(match: Any) -> bool:
    """The rewrite is left to what keeps its dtype: it computes in the dtype of the operands."""
    result: torch.Tensor = match.output_node().meta["val"]
    operands = [it for it in match.kwargs.values() if isinstance(it, fx.Node)]
    dtypes = [it.meta["val"].dtype for it in operands if it.meta["val"].dim()]
    return all(dtype == result.dtype for dtype in dtypes if dtype.is_floating_point)


BUG = KnownBug(
    "softmax-in-wider-dtype",
    "s - s.amax() of a product that was cast to bfloat16 is returned as float32",
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, x1)
        v1 = aten._to_copy.default(v0, dtype=torch.bfloat16)
        v2 = aten.amax.default(v1, [-1], True)
        v3 = aten.sub.Tensor(v1, v2)
        return (v3,)
        """,
        view(2, 2),
        view(2, 1),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "amax"),
    rank=552,
)
