"""Inductor's adaptive maximum takes the first nan of a window, and eager the last one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import DECOMPOSITIONS, mends
from aliasproof.programs.program import Storage

aten = torch.ops.aten


@mends(
    *DECOMPOSITIONS,
    keys=(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default),
)
def mended(original: Any, *args: Any) -> Any:
    """The operator is not decomposed."""
    return NotImplemented


PROGRAM = program_of(
    """
    v0, v1 = aten.adaptive_max_pool2d.default(x0, [1, 1])
    return (v1,)
    """,
    view(1, 1, 2),
)

BUG = KnownBug(
    "adaptive-pool-index-of-nan",
    "the index that adaptive_max_pool2d returns is that of the first nan, in eager of the last",
    "",
    replace(PROGRAM, storages=(Storage(torch.float32, 2, ("nan",)),)),
    ("aot:decompose", "inductor-fx"),
    ("2.13",),
    mended,
    plausible=lambda program: calls(
        program, "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"
    ),
    rank=1040,
)
