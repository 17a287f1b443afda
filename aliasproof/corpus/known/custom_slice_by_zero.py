"""`auto_functionalized_v2` divides by the stride of a view, which can be 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.ir.program import Program


@mends("torch._higher_order_ops.auto_functionalize:try_use_slice")
def mended(original: Callable[..., Any], base: torch.Tensor, tensor: torch.Tensor) -> Any:
    """A view with a stride of 0 is taken by `as_strided`, not by `slice`.

    A view with one element along such a stride may be written. AOTAutograd then refuses to write an
    input that overlaps itself, as documented.
    """
    return None if 0 in tensor.stride() else original(base, tensor)


def _has_stride_of_zero(program: Program) -> bool:
    return any(0 in tensor.strides for tensor in program.inputs)


BUG = KnownBug(
    "custom-slice-by-zero",
    "ZeroDivisionError where a custom operator writes an empty slice with a stride of 0",
    "",
    program_of(
        """
        v0 = aten.slice.Tensor(x0, 0, 1)
        torch.ops.aliasproof.double.default(v0)
        return ()
        """,
        view(1, 0, strides=(0, 1)),
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    mended,
    # With the mend, a program may be refused as documented.
    mark=Mark(("errors",), "ZeroDivisionError: integer modulo by zero", _has_stride_of_zero),
    plausible=_has_stride_of_zero,
    rank=840,
)
