"""Code for a maximum of windows takes the first nan of a window, and eager the last one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.programs.program import Storage


@mends("torch._inductor.lowering:should_fallback_max_pool_with_indices")
def mended(original: Any, *args: Any, **kwargs: Any) -> bool:
    """Eager's kernel finds the maxima, as in windows that are large."""
    return True


PROGRAM = program_of(
    """
    v0, v1 = aten.max_pool2d_with_indices.default(x0, [1, 2])
    return (v1,)
    """,
    view(1, 1, 2),
)

BUG = KnownBug(
    "pool-index-of-nan",
    "the index that max_pool2d returns is that of the first nan of a window, in eager of the last",
    "",
    replace(PROGRAM, storages=(Storage(torch.float32, 2, ("nan",)),)),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "max_pool1d", "max_pool2d_with_indices"),
    rank=1050,
)
