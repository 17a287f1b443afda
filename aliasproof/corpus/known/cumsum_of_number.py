"""Inductor fails on the cumsum of a constant tensor without dimensions."""

from __future__ import annotations

from typing import Any

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("post_grad", "pointless_cumsum_replacement")
def mended(match: Any) -> bool:
    """The rewrite, which asks for the size of the dimension, needs one."""
    return len(match.kwargs["shape"]) > 0


BUG = KnownBug(
    "cumsum-of-number",
    "Inductor raises IndexError for the cumsum of a constant tensor without dimensions",
    "",
    program_of(
        """
        v0 = aten.ones_like.default(x0)
        v1 = aten.cumsum.default(v0, 0)
        return (v1,)
        """,
        view(),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "cumsum", "cumsum_"),
    rank=430,
)
