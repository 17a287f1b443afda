"""`cat` of one tensor has the strides of that tensor under Inductor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import DECOMPOSITIONS, mends

aten = torch.ops.aten


@mends(*DECOMPOSITIONS, keys=(aten.cat.default,))
def mended(original: Callable[..., Any], tensors: Any, dim: int = 0) -> Any:
    """The result has the strides of eager's: dense, or channels last.

    Torch clones the only tensor, and a clone keeps strides.
    """
    if len(tensors) == 1:
        return tensors[0].clone(memory_format=suggest_memory_format(tensors[0]))
    return original(tensors, dim)


BUG = KnownBug(
    "cat-of-one",
    "cat of one transposed tensor is transposed, too",
    "",
    program_of(
        """
        v0 = aten.cat.default([x0])
        return (v0,)
        """,
        view(2, 2, strides=(1, 2)),
    ),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(
        program, "cat", "concat", "concatenate", "hstack", "vstack", "dstack", "column_stack"
    ),
    rank=825,
)
