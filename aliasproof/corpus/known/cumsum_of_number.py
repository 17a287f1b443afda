"""Inductor fails on the cumsum of a constant tensor without dimensions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from aliasproof.corpus.inductor_passes import pattern_needs
from aliasproof.corpus.known_bug import KnownBug, calls, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The rewrite, which asks for the size of the dimension, needs one."""

    def has_dimensions(match: object) -> bool:
        return len(match.kwargs["shape"]) > 0  # type: ignore[attr-defined]

    with pattern_needs("post_grad", ("pointless_cumsum_replacement",), has_dimensions):
        yield


BUG = KnownBug(
    "cumsum-of-number",
    "Inductor raises IndexError for the cumsum of a constant tensor without dimensions",
    "",
    written(
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
)
