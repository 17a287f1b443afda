"""`auto_functionalized_v2` ignores the storage offset of a base when it slices the base."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch._higher_order_ops import auto_functionalize

from corpus.known_bug import KnownBug, view, written


@dataclass(frozen=True, slots=True)
class _Moved:
    """The layout of a tensor, at another storage offset."""

    tensor: torch.Tensor
    offset: int | torch.SymInt

    def size(self) -> torch.Size:
        return self.tensor.size()

    def stride(self) -> tuple[int, ...]:
        return self.tensor.stride()

    def storage_offset(self) -> int | torch.SymInt:
        return self.offset


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """Offsets count from the first element of the base.

    `try_use_slice` divides the storage offset of the view by the stride. That is the index of the
    view in its base if the base is at the start of its storage.
    """
    original = auto_functionalize.try_use_slice

    def try_use_slice(base: torch.Tensor, tensor: torch.Tensor) -> Any:
        offset = tensor.storage_offset() - base.storage_offset()
        return original(_Moved(base, 0), _Moved(tensor, offset))

    with mock.patch.object(auto_functionalize, "try_use_slice", try_use_slice):
        yield


BUG = KnownBug(
    "custom-slice-offset",
    "a custom operator that writes x[1:] writes another slice if x has a storage offset",
    "",
    written(
        """
        v0 = aten.slice.Tensor(x0, 0, 1)
        torch.ops.aliasproof.double.default(v0)
        return ()
        """,
        view(2, offset=1),
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: any(each.offset for each in program.inputs),
)
