"""With freezing, a leaky relu whose slope is a constant tensor cannot be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._inductor.pattern_matcher:LoweringPatternEntry.apply")
def mended(
    original: Callable[..., Any], entry: Any, match: Any, graph: fx.Graph, node: fx.Node
) -> Any:
    """A slope that is no number is left to the calls as they are written."""
    if isinstance(match.kwargs.get("negative_slope"), fx.Node):
        return None
    return original(entry, match, graph, node)


BUG = KnownBug(
    "slope-of-leaky-relu",
    "where(y > 0, y, y * slope) behind a frozen convolution raises if slope is a frozen tensor",
    "",
    program_of(
        """
        v0 = aten.convolution.default(x0, x2, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        v1 = aten.gt.Scalar(v0, 0)
        v2 = aten.mul.Tensor(v0, x3)
        v3 = aten.where.self(v1, v0, v2)
        return (v3,)
        """,
        view(1, 1, 1, 1),
        view(1),
        view(1, 1, 1, 1),
        view(),
    ),
    ("inductor:freezing",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "where") and calls(program, "gt"),
    rank=1020,
)
