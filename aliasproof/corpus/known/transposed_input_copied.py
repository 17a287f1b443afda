"""`torch.func.functionalize` copies an input of which only the metadata changed into itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch._functorch import eager_transforms
from torch.multiprocessing.reductions import StorageWeakRef

from aliasproof.corpus.known_bug import KnownBug, view, written
from aliasproof.programs.program import Program
from aliasproof.programs.schemas import resolve

_NAME = "_propagate_functional_input_mutation"


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """An input whose contents are in its own storage gets the new layout, and is not copied."""
    original = getattr(eager_transforms, _NAME)

    def propagate(given: torch.Tensor, wrapped: Any) -> None:
        torch._sync(wrapped)  # type: ignore[attr-defined]
        inner = torch._from_functional_tensor(wrapped)
        if StorageWeakRef(inner.untyped_storage()) != StorageWeakRef(given.untyped_storage()):
            original(given, wrapped)
        elif (inner.shape, inner.stride()) != (given.shape, given.stride()):
            given.as_strided_(inner.shape, inner.stride(), inner.storage_offset())

    with mock.patch.object(eager_transforms, _NAME, propagate):
        yield


def _changes_metadata(program: Program) -> bool:
    return any(
        torch.Tag.inplace_view in resolve(call.op).tags
        for call in program.instructions
        if call.op.startswith("aten.")
    )


BUG = KnownBug(
    "transposed-input-copied",
    "functionalize of x.t_() copies x.t() into x, which raises",
    "",
    written(
        """
        aten.t_.default(x0)
        return ()
        """,
        view(2, 2),
    ),
    ("functionalize", "fx-reinplace"),
    ("2.13", "2.15"),
    mended,
    plausible=_changes_metadata,
)
