"""Functionalization does not know `polygamma_`."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import adds_kernel


@adds_kernel("Functionalize", "polygamma_")
def mended(x: torch.Tensor, order: int) -> torch.Tensor:
    """`polygamma_` is `polygamma`, copied back."""
    return x.copy_(torch.polygamma(order, x))


BUG = KnownBug(
    "polygamma-in-place",
    "functionalization takes polygamma_ for a custom operator and refuses it",
    "",
    program_of(
        """
        aten.polygamma_.default(x0, 1)
        return ()
        """,
        view(),
    ),
    ("functionalize", "fx-reinplace", "aot"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "polygamma_"),
    rank=110,
)
