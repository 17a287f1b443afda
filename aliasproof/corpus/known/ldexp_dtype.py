"""`ldexp` has another dtype than in eager."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import LOWERINGS, mends, traced_dtype


@mends(LOWERINGS, keys=(torch.ops.aten.ldexp.Tensor,))
def mended(original: Any, x: Any, exponent: Any) -> Any:
    """The first operand is converted to the dtype of the result in the traced graph.

    `ldexp_lowering` takes the dtype of the first operand, and float32 if that is an integer or
    bool.
    """
    from torch._inductor import lowering  # noqa: PLC0415 - takes two seconds

    return original(lowering.to_dtype(x, traced_dtype()), exponent)


BUG = KnownBug(
    "ldexp-dtype",
    "ldexp ignores the dtype of the exponent",
    "https://github.com/pytorch/pytorch/issues/197091",
    program_of(
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
    rank=780,
)
