"""The mask of `native_dropout` has another dtype on fake tensors if it has no elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._decomp:decomposition_table", keys=(torch.ops.aten.native_dropout.default,))
def mended(original: Callable[..., Any], x: torch.Tensor, *args: Any) -> Any:
    """The mask of a tensor without elements has the dtype of the tensor, as in eager.

    The kernel for CPU returns `empty_like(input)`. The decomposition, which is the fake kernel,
    returns bools.
    """
    dropped, mask = original(x, *args)
    return dropped, mask.to(x.dtype) if x.numel() == 0 else mask


BUG = KnownBug(
    "mask-of-empty-dropout",
    "the mask of native_dropout is float32 in eager and bool on fakes if it has no elements",
    "",
    program_of(
        """
        v0, v1 = aten.native_dropout.default(x0, 0.5, True)
        v2 = aten.neg.default(v1)
        return (v2,)
        """,
        view(0),
    ),
    ("fx-reinplace", "aot", "aot-epilogue"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "native_dropout"),
    rank=150,
)
