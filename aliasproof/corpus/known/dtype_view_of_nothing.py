"""The inverse of a view of another dtype fails on a tensor without elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.corpus.known_bug import KnownBug, program_of, view, views_dtype
from aliasproof.corpus.view_inverses import Call, mends_inverse

aten = torch.ops.aten


@mends_inverse("view_dtype", aten.view.dtype)
def mended(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
    """Without elements, the new base is an empty tensor of the base's shape.

    Torch views what was written as the dtype of the base. A functional op returned it, with strides
    that such a view refuses.
    """
    written_view, dtype = args
    if written_view.numel():
        return NotImplemented
    nbytes = written_view.shape[-1] * written_view.dtype.itemsize
    shape = [*written_view.shape[:-1], nbytes // dtype.itemsize]
    return call(aten.new_empty.default, written_view, shape, dtype=dtype)


BUG = KnownBug(
    "dtype-view-of-nothing",
    "a write through a view of another dtype raises if the tensor has no elements",
    "",
    program_of(
        """
        v0 = aten.view.dtype(x0, torch.float32)
        aten.add_.Scalar(v0, 1)
        return ()
        """,
        view(2, 0, dtype=torch.complex64),
    ),
    ("functionalize", "aot", "aot-epilogue", "fx-reinplace"),
    ("2.13", "2.15"),
    mended,
    plausible=views_dtype,
    rank=80,
)
