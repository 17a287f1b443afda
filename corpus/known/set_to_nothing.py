"""Functionalization takes `x.set_()` for a write of data, which the aliases of x see."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from corpus.known_bug import KnownBug, calls, view, written
from corpus.overrides import kernel_replaced

aten = torch.ops.aten


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """`x.set_()` is `x.set_(empty)`, for which functionalization has a kernel by hand."""
    with kernel_replaced("set_", "Functionalize", _set_to_empty):
        yield


def _set_to_empty(original: Callable[..., Any], x: torch.Tensor) -> Any:
    return aten.set_.source_Tensor(x, torch.empty(0, dtype=x.dtype, device=x.device))


BUG = KnownBug(
    "set-to-nothing",
    "after y.set_(), a view of the old y is empty too",
    "",
    written(
        """
        v0 = aten.add.Scalar(x0, 1)
        v1 = aten.alias.default(v0)
        aten.set_.default(v0)
        v2 = aten.neg.default(v1)
        return (v2,)
        """,
        view(1),
    ),
    ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "inductor-fx"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "set_"),
)
