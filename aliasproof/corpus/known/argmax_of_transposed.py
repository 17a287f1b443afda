"""Inductor's argmax and argmin number what is computed in the order of memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import LOWERINGS, mends, run_in_eager, together
from aliasproof.ir.program import Storage

aten = torch.ops.aten


@mends(LOWERINGS, keys=(aten.argmax.default,))
def _argmax(original: Any, *args: Any, **kwargs: Any) -> Any:
    return run_in_eager(aten.argmax.default, *args, **kwargs)


@mends(LOWERINGS, keys=(aten.argmin.default,))
def _argmin(original: Any, *args: Any, **kwargs: Any) -> Any:
    return run_in_eager(aten.argmin.default, *args, **kwargs)


PROGRAM = program_of(
    """
    v0 = aten.neg.default(x0)
    v1 = aten.argmin.default(v0)
    return (v1,)
    """,
    view(2, 2, strides=(1, 2)),
)
BUG = KnownBug(
    "argmax-of-transposed",
    "argmax of what is computed from a transposed tensor is its position in memory",
    "https://github.com/pytorch/pytorch/issues/197739",
    replace(PROGRAM, storages=(Storage(torch.float32, 4, ("1", "2", "4", "3")),)),
    ("inductor",),
    ("2.13",),
    together(_argmax, _argmin),
    plausible=lambda program: calls(program, "argmax", "argmin"),
    rank=735,
)
