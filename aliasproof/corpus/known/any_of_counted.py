"""Vectorised `any` and `all` of a comparison of positions do not compile."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

BUG = KnownBug(
    "any-of-counted",
    "any or all of what torch.arange gives raises: C++ compile error",
    "",
    program_of(
        """
        v0 = aten.ones_like.default(x0)
        v1 = aten.cumsum.default(v0, 0)
        v2 = aten.any.default(v1)
        return (v2,)
        """,
        view(2, dtype=torch.int64),
    ),
    ("inductor",),
    ("2.13",),
    # A vector of positions is compared to a vector of bools, and no mask: it has no `cast`.
    mark=Mark(
        ("errors",),
        r"CppCompileError",
        lambda program: calls(program, "any", "all") and calls(program, "arange", "cumsum"),
        reduced=True,
    ),
    plausible=lambda program: calls(program, "any", "all"),
    vector_bits=(256, 512),
    rank=805,
)
