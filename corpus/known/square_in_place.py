"""`torch.func.functionalize` does not know `square_`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from corpus.known_bug import KnownBug, calls, view, written
from corpus.overrides import kernel_added


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """`square_` is `pow_(2)`, as its implementation says."""
    with kernel_added("square_", "Functionalize", lambda x: torch.ops.aten.pow_.Scalar(x, 2)):
        yield


BUG = KnownBug(
    "square-in-place",
    "torch.func.functionalize takes square_ for a custom operator and refuses it",
    "",
    written(
        """
        aten.square_.default(x0)
        return ()
        """,
        view(),
    ),
    ("functionalize", "fx-reinplace"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "square_"),
)
