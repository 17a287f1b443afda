"""Inductor's rewrite of `s - s.amax()` chooses by a condition, whose strides the result gets."""

from __future__ import annotations

from typing import Any

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("joint_graph", "div_softmax_pattern", "mul_softmax_pattern")
def mended(match: Any) -> bool:
    """The rewrite is left to results that are dense in the order of their dimensions."""
    return bool(match.output_node().meta["val"].is_contiguous())


BUG = KnownBug(
    "softmax-strides",
    "s - s.amax() of a scaled transposed tensor has other strides than in eager",
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, 2)
        v1 = aten.amax.default(v0, [0], True)
        v2 = aten.sub.Tensor(v0, v1)
        return (v2,)
        """,
        view(2, 2, 2, strides=(4, 1, 2)),
    ),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "amax"),
    rank=558,
)
