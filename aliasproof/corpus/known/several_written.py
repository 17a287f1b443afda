"""FX reinplacing fails on an op whose in-place form writes to a second argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch.fx.passes.reinplace:_schemas_match")
def mended(original: Callable[..., Any], functional: Any, inplace: Any) -> bool:
    """An op whose in-place form writes to a second argument has no in-place form for the pass."""
    written = [
        argument
        for argument in inplace.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return len(written) == 1 and original(functional, inplace)


BUG = KnownBug(
    "several-written",
    "FX reinplacing raises an AssertionError on an op whose in-place form writes to two arguments",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        aten._amp_update_scale_.default(v0, x1, x0, 2.0, 0.5, 1)
        return (v0,)
        """,
        view(),
        view(dtype=torch.int32),
    ),
    ("fx-reinplace",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "_amp_update_scale", "_amp_update_scale_"),
    rank=950,
)
