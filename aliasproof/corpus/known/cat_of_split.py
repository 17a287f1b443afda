"""Inductor replaces the `cat` of all parts of a `split` by the tensor itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from aliasproof.corpus.inductor_passes import pattern_needs
from aliasproof.corpus.known_bug import KnownBug, calls, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The rewrite is left out. It returns its operand, and `cat` returns a new tensor."""
    handlers = ("splitwithsizes_cat_replace",)
    with pattern_needs("post_grad", handlers, lambda match: False):
        yield


BUG = KnownBug(
    "cat-of-split",
    "Inductor's cat of the parts of an input is the input itself, and sees later writes to it",
    "",
    written(
        """
        v0, v1 = aten.split_with_sizes.default(x0, [1, 1], 1)
        v2 = aten.cat.default([v0, v1], 1)
        aten.add_.Scalar(x0, 1)
        return (v2,)
        """,
        view(1, 2),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "cat"),
)
