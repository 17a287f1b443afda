"""`ldexp` has another dtype than in eager."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from aliasproof.corpus.inductor_lowerings import lowering_replaced, traced_dtype
from aliasproof.corpus.known_bug import KnownBug, calls, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The first operand is converted to the dtype of the result in the traced graph.

    `ldexp_lowering` takes the dtype of the first operand, and float32 if that is an integer or
    bool.
    """
    with lowering_replaced(torch.ops.aten.ldexp.Tensor, _ldexp):
        yield


def _ldexp(original: Any, x: Any, exponent: Any) -> Any:
    from torch._inductor import lowering  # noqa: PLC0415 - takes two seconds

    return original(lowering.to_dtype(x, traced_dtype()), exponent)


BUG = KnownBug(
    "ldexp-dtype",
    "ldexp ignores the dtype of the exponent",
    "https://github.com/pytorch/pytorch/issues/197091",
    written(
        """
        v0 = aten.ldexp.Tensor(x0, x1)
        return (v0,)
        """,
        view(2, dtype=torch.float16),
        view(2),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "ldexp"),
)
