"""Inductor computes the cumsum of a constant tensor with a number that is not of its dtype."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("post_grad", "pointless_cumsum_replacement")
def mended(match: Any) -> bool:
    """The rewrite is left to tensors that can contain the number as it is.

    It is `arange(1, n + 1) * number`, with the number before `full` converts it.
    """
    dtype, number = (match.kwargs[name] for name in ("dtype", "fill_value"))
    return bool(torch.tensor(number, dtype=dtype).item() == number) or dtype.is_floating_point


BUG = KnownBug(
    "cumsum-of-constant",
    "Inductor's cumsum of full((n,), 2.5, dtype=int64) adds up 2.5",
    "https://github.com/pytorch/pytorch/pull/190328",
    program_of(
        """
        v0 = aten.full_like.default(x0, 2)
        v1 = aten.cumsum.default(v0, 0)
        return (v1,)
        """,
        view(2, dtype=torch.bool),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "cumsum", "cumsum_"),
    rank=420,
)
