"""Inductor's adaptive maximum of NaN is at another position than eager's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import LOWERINGS, mends, run_in_eager
from aliasproof.ir.program import Storage

OP = torch.ops.aten.adaptive_max_pool2d.default


@mends(LOWERINGS, keys=(OP,))
def mended(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Eager's kernel runs: where a window has a NaN, the position is that of a NaN.

    The lowering compares with `>`, so a NaN never replaces what was found before.
    """
    return run_in_eager(OP, *args, **kwargs)


PROGRAM = program_of(
    """
    v0, v1 = aten.adaptive_max_pool2d.default(x0, [1, 2])
    return v0, v1
    """,
    view(1, 1, 3),
)
BUG = KnownBug(
    "adaptive-pool-of-nan",
    "adaptive_max_pool gives NaN, and the position of an element that is none",
    "",
    replace(PROGRAM, storages=(Storage(torch.float32, 3, ("1", "nan", "3")),)),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "adaptive_max_pool1d", "adaptive_max_pool2d"),
    rank=815,
)
