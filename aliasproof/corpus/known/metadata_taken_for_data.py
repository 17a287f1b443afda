"""Functionalization takes `x.set_()` and `x.resize_as_(y)` for writes that aliases of x see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_kernel, together

aten = torch.ops.aten


@mends_kernel("set_", "Functionalize")
def _set_to_empty(original: Callable[..., Any], x: torch.Tensor) -> Any:
    return aten.set_.source_Tensor(x, torch.empty(0, dtype=x.dtype, device=x.device))


@mends_kernel("resize_as_", "Functionalize")
def _resize_as(original: Callable[..., Any], x: torch.Tensor, y: torch.Tensor) -> Any:
    return aten.resize_.default(x, y.shape)


# They are calls of `set_` with a tensor and of `resize_`. For these two, functionalization has
# kernels by hand. For others that change metadata alone, its kernels are generated, as for writes
# of data.
MENDED = together(_set_to_empty, _resize_as)


BUG = KnownBug(
    "metadata-taken-for-data",
    "after y.set_(), a view of the old y is empty too, and after y.resize_as_(x), it is resized",
    "",
    program_of(
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
    MENDED,
    plausible=lambda program: calls(program, "set_", "resize_as_"),
    rank=930,
)
