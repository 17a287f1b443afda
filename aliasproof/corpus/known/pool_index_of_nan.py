"""Code for a maximum of windows takes the first nan of a window, and eager the last one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import (
    DECOMPOSITIONS,
    LOWERINGS,
    Mend,
    mends,
    run_in_eager,
    together,
)
from aliasproof.ir.program import Storage

OPS = (
    torch.ops.aten.max_pool2d_with_indices.default,
    torch.ops.aten.max_pool3d_with_indices.default,
)


@mends(*DECOMPOSITIONS, keys=OPS)
def _kept(original: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator is not decomposed."""
    return NotImplemented


def _in_eager(op: OpOverload) -> Mend:
    """Eager's kernel finds the maxima."""

    @mends(LOWERINGS, keys=(op,))
    def lowered(original: Any, *args: Any, **kwargs: Any) -> Any:
        return run_in_eager(op, *args, **kwargs)

    return lowered


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
    together(_kept, *map(_in_eager, OPS)),
    plausible=lambda program: "max_pool" in repr(program),
    rank=1050,
)
