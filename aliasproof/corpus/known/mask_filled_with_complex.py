"""The decomposition of `masked_fill` refuses what eager accepts for bools."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

BUG = KnownBug(
    "mask-filled-with-complex",
    "masked_fill of bools with a complex number raises, and not in eager",
    "",
    program_of(
        """
        v0 = aten.masked_fill.Tensor(x0, x0, x1)
        return (v0,)
        """,
        view(1, dtype=torch.bool),
        view(dtype=torch.complex64),
    ),
    ("aot", "aot:decompose", "inductor-fx"),
    ("2.13",),
    mark=Mark(
        ("errors",),
        r"could not convert to type",
        lambda program: calls(program, "masked_fill", "masked_fill_"),
    ),
    plausible=lambda program: calls(program, "masked_fill", "masked_fill_"),
    rank=875,
)
