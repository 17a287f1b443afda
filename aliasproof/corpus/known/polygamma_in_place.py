"""Functionalization does not know `polygamma_`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, view, written
from aliasproof.corpus.overrides import kernel_added


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """`polygamma_` is `polygamma`, copied back."""
    with kernel_added("polygamma_", "Functionalize", _polygamma):
        yield


def _polygamma(x: torch.Tensor, order: int) -> torch.Tensor:
    return x.copy_(torch.polygamma(order, x))


BUG = KnownBug(
    "polygamma-in-place",
    "functionalization takes polygamma_ for a custom operator and refuses it",
    "",
    written(
        """
        aten.polygamma_.default(x0, 1)
        return ()
        """,
        view(),
    ),
    ("functionalize", "fx-reinplace", "aot"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "polygamma_"),
)
