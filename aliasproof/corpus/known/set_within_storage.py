"""AOTAutograd ignores `x.set_(y)` where the inputs x and y share a storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, inputs_share, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.ir.program import Program


@mends("torch:_functionalize_has_metadata_mutation")
def mended(original: Callable[..., Any], tensor: torch.Tensor) -> bool:
    """After `set_`, sizes, strides and offset of an input are compared, whatever its storage is.

    Torch compares them only after calls such as `t_`. After `set_`, it compares the storages.
    """
    return original(tensor) or torch._functionalize_was_storage_changed(tensor)


def _sets_shared(program: Program) -> bool:
    return inputs_share(program) and calls(program, "set_")


BUG = KnownBug(
    "set-within-storage",
    "x.set_(y) is ignored if the inputs x and y share a storage",
    "",
    program_of(
        """
        aten.set_.source_Tensor(x0, x1)
        return ()
        """,
        view(2, storage=0),
        view(1, storage=0, offset=2),
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    mended,
    plausible=_sets_shared,
    rank=940,
)
