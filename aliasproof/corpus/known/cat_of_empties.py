"""Inductor drops empty operands of `cat` with their dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import DECOMPOSITIONS, mends

aten = torch.ops.aten


@mends(*DECOMPOSITIONS, keys=(aten.cat.default,))
def mended(original: Callable[..., Any], tensors: Any, dim: int = 0) -> Any:
    """The result has the dtype to which all operands are promoted, the empty ones too.

    Torch asks for this dtype only where one operand is left (pytorch/pytorch#152995).
    """
    result = original(tensors, dim)
    if result is NotImplemented:
        return result
    dtypes = [tensor.dtype for tensor in tensors]
    promoted = dtypes[0]
    for dtype in dtypes:
        promoted = torch.promote_types(promoted, dtype)
    return result if result.dtype == promoted else result.to(promoted)


BUG = KnownBug(
    "cat-of-empties",
    "Inductor's cat ignores the dtype of empty operands",
    "",
    program_of(
        """
        v0 = aten.cat.default([x0, x1, x2])
        return (v0,)
        """,
        view(0, dtype=torch.float64),
        view(1),
        view(1),
    ),
    ("aot:decompose", "inductor-fx"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "cat"),
    rank=380,
)
