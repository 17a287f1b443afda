"""The inverse of a view of another dtype fails on a tensor without elements."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.corpus.known_bug import KnownBug, view, written
from aliasproof.corpus.view_inverses import Call, reachable, replaced_in_modes, undoing

aten = torch.ops.aten


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """Without elements, the new base is an empty tensor of the base's shape.

    Torch views what was written as the dtype of the base. A functional op returned it, with strides
    that such a view refuses.
    """
    with replaced_in_modes(_inverse):
        yield


def _inverse(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
    if op is aten.view.dtype and args[0].numel() == 0 and undoing("view_dtype"):
        written_view, dtype = args
        nbytes = written_view.shape[-1] * written_view.dtype.itemsize
        shape = [*written_view.shape[:-1], nbytes // dtype.itemsize]
        return call(aten.new_empty.default, written_view, shape, dtype=dtype)
    return NotImplemented


BUG = KnownBug(
    "dtype-view-of-nothing",
    "a write through a view of another dtype raises if the tensor has no elements",
    "",
    written(
        """
        v0 = aten.view.dtype(x0, torch.float32)
        aten.add_.Scalar(v0, 1)
        return ()
        """,
        view(2, 0, dtype=torch.complex64),
    ),
    ("functionalize", "aot", "aot-epilogue", "fx-reinplace"),
    ("2.13", "2.15"),
    mended if reachable("view_dtype") else None,
    plausible=lambda program: any("view.dtype" in call.op for call in program.instructions),
)
