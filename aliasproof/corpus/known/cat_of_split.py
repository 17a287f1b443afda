"""Inductor replaces the `cat` of all parts of a `split` by the tensor itself."""

from __future__ import annotations

from typing import Any

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("post_grad", "splitwithsizes_cat_replace")
def mended(match: Any) -> bool:
    """The rewrite is left out. It returns its operand, and `cat` returns a new tensor."""
    return False


BUG = KnownBug(
    "cat-of-split",
    "Inductor's cat of the parts of an input is the input itself, and sees later writes to it",
    "",
    program_of(
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
    rank=570,
)
