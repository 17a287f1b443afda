"""Inductor rounds to decimals by a factor that is not exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import DECOMPOSITIONS, mends

aten = torch.ops.aten


@mends(*DECOMPOSITIONS, keys=(aten.round.decimals,))
def mended(original: Callable[..., Any], x: Any, *, decimals: int) -> Any:
    """Divide by 1000, as the kernel does, and not multiply by 0.001, which is no float."""
    del original
    power = 10.0 ** abs(decimals)
    if decimals < 0:
        return aten.round(x / power) * power
    return aten.round(x * power) / power


BUG = KnownBug(
    "rounded-by-reciprocal",
    "Inductor decomposes round(x, decimals=-3) to round(x * 0.001) * 1000: 6500 becomes 7000",
    "",
    program_of(
        """
        v0 = aten.mul.Scalar(x0, 2500)
        v1 = aten.add.Scalar(v0, 4000)
        v2 = aten.round.decimals(v1, decimals=-3)
        return (v2,)
        """,
        view(1),
    ),
    ("aot:decompose", "inductor-fx"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "round", "round_"),
    rank=520,
)
