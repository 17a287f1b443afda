"""FX reinplacing fails on an op whose in-place form writes to a second argument."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.fx.passes import reinplace

from aliasproof.corpus.known_bug import KnownBug, calls, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """An op whose in-place form writes to a second argument has no in-place form for the pass."""
    original = reinplace._schemas_match

    def match(functional: Any, inplace: Any) -> bool:
        written = [
            argument
            for argument in inplace.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        return len(written) == 1 and original(functional, inplace)

    with mock.patch.object(reinplace, "_schemas_match", match):
        yield


BUG = KnownBug(
    "several-written",
    "FX reinplacing raises an AssertionError on an op whose in-place form writes to two arguments",
    "",
    written(
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
)
