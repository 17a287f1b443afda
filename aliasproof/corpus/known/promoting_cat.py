"""Inductor replaces the parts of a `cat` by its operands, whatever their dtypes are."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("post_grad", "cat_splitwithsizes_replace")
def mended(match: Any) -> bool:
    """The rewrite is left to operands of one dtype, which `cat` does not promote."""
    return len({operand.meta["val"].dtype for operand in match.kwargs["input_"]}) == 1


BUG = KnownBug(
    "promoting-cat",
    "Inductor's split of cat((float, integer)) gives a part of integers",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        v1 = aten.add.Scalar(x1, 1)
        v2 = aten.cat.default([v0, v1], 1)
        v3, v4 = aten.split_with_sizes.default(v2, [1, 1], 1)
        return v3, v4
        """,
        view(1, 1),
        view(1, 1, dtype=torch.int64),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "cat"),
    rank=610,
)
