"""Inductor scatters a number from a tensor that is as large as the operand, not as the index."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from aliasproof.corpus.inductor_lowerings import lowering_replaced, run_in_eager
from aliasproof.corpus.known_bug import KnownBug, calls, view, written

aten = torch.ops.aten


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The kernel of eager scatters the number."""
    op = aten.scatter.value_reduce
    with lowering_replaced(op, lambda _, *args, **kwargs: run_in_eager(op, *args, **kwargs)):
        yield


BUG = KnownBug(
    "long-scatter-of-number",
    "Inductor raises RuntimeError for x.scatter(0, i, 1, reduce='add') if i is longer than x",
    "",
    written(
        """
        v0 = aten.zeros_like.default(x1)
        v1 = aten.scatter.value_reduce(x0, 0, v0, 1, reduce='add')
        return (v1,)
        """,
        view(1),
        view(2, dtype=torch.int64),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "scatter", "scatter_"),
)
