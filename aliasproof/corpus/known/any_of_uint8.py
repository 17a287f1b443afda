"""`any` of a uint8 tensor has another dtype than in eager."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import LOWERINGS, mends, traced_dtype

OPS = (torch.ops.aten.any.default, torch.ops.aten.any.dim, torch.ops.aten.any.dims)


@mends(LOWERINGS, keys=OPS)
def mended(original: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The result has the dtype that it has in the traced graph.

    The documentation of `torch.any` says uint8 for uint8. `reduce_any` returns bool.
    """
    from torch._inductor import lowering  # noqa: PLC0415 - takes two seconds

    return lowering.to_dtype(original(x, *args, **kwargs), traced_dtype())


BUG = KnownBug(
    "any-of-uint8",
    "any of a uint8 tensor is bool, and uint8 in eager",
    "https://github.com/pytorch/pytorch/issues/198081",
    program_of(
        """
        v0 = aten.any.default(x0)
        return (v0,)
        """,
        view(2, dtype=torch.uint8),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "any"),
    rank=760,
)
