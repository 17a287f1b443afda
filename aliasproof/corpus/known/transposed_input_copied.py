"""`torch.func.functionalize` copies an input of which only the metadata changed into itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.ir.program import Program
from aliasproof.ir.schemas import resolve


@mends("torch._functorch.eager_transforms:_propagate_functional_input_mutation")
def mended(original: Callable[..., Any], given: torch.Tensor, wrapped: Any) -> None:
    """An input whose contents are in its own storage gets the new layout, and is not copied."""
    torch._sync(wrapped)  # type: ignore[attr-defined]
    inner = torch._from_functional_tensor(wrapped)
    if StorageWeakRef(inner.untyped_storage()) != StorageWeakRef(given.untyped_storage()):
        original(given, wrapped)
    elif (inner.shape, inner.stride()) != (given.shape, given.stride()):
        given.as_strided_(inner.shape, inner.stride(), inner.storage_offset())


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
    program_of(
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
    rank=100,
)
