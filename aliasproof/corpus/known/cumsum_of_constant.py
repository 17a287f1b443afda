"""Inductor computes the cumsum of a constant tensor with a number that is not of its dtype."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from aliasproof.corpus.inductor_passes import pattern_needs
from aliasproof.corpus.known_bug import KnownBug, calls, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The rewrite is left to tensors that can contain the number as it is.

    It is `arange(1, n + 1) * number`, with the number before `full` converts it.
    """
    with pattern_needs("post_grad", ("pointless_cumsum_replacement",), _representable):
        yield


def _representable(match: object) -> bool:
    dtype, number = (match.kwargs[name] for name in ("dtype", "fill_value"))  # type: ignore[attr-defined]
    return bool(torch.tensor(number, dtype=dtype).item() == number) or dtype.is_floating_point


BUG = KnownBug(
    "cumsum-of-constant",
    "Inductor's cumsum of full((n,), 2.5, dtype=int64) adds up 2.5",
    "https://github.com/pytorch/pytorch/pull/190328",
    written(
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
)
