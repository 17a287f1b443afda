"""Inductor rewrites `x / c - (x / c).amax()` to `(x - x.amax()) / c`, which wraps for uint8."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("joint_graph", "div_softmax_pattern", "mul_softmax_pattern")
def mended(match: Any) -> bool:
    """The rewrite, which is made for softmax, is left to floating point numbers."""
    operand = match.kwargs["inp"]
    # Of a product, the number may be matched as this operand. What then happens is torch's matter.
    return not isinstance(operand, fx.Node) or operand.meta["val"].is_floating_point()


BUG = KnownBug(
    "softmax-of-integers",
    "Inductor rewrites x / c - (x / c).amax() so that it subtracts in uint8",
    "",
    program_of(
        """
        v0 = aten.div.Tensor(x0, x1)
        v1 = aten.amax.default(v0, [0], True)
        v2 = aten.sub.Tensor(v0, v1)
        return (v2,)
        """,
        view(2, dtype=torch.uint8),
        view(),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "amax"),
    rank=550,
)
