"""The position of the smallest bool is that of the largest."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import LOWERINGS, mends, run_in_eager

MIN = torch.ops.aten.min.dim


@mends(LOWERINGS, keys=(MIN,))
def mended(original: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Eager's kernel finds the minimum of a bool tensor.

    The vectorised code compares masks with `<`.
    """
    if x.get_dtype() is torch.bool:
        return run_in_eager(MIN, x, *args, **kwargs)
    return original(x, *args, **kwargs)


BUG = KnownBug(
    "bool-argmin",
    "min of a bool tensor along a dimension returns the position of a True beside a False",
    "https://github.com/pytorch/pytorch/issues/184893",
    program_of(
        """
        v0, v1 = aten.min.dim(x0, 0)
        return v0, v1
        """,
        view(9, 17, dtype=torch.bool),
    ),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "min", "argmin"),
    vector_bits=(256, 512),
    rank=730,
)
