"""A masked write gives a tensor another buffer, and its views read that buffer too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._inductor.lowering:mutate_to")
def mended(
    original: Callable[..., Any], changed: Any, value: Any, *rest: Any, **options: Any
) -> Any:
    """A write to a tensor that has a buffer goes into that buffer.

    `mutate_to` gives the tensor the buffer of the new value. Views that were made before find their
    buffer by the tensor, so what reads them depends on the write that depends on it.
    """
    from torch._inductor import ir  # noqa: PLC0415 - takes two seconds

    box = changed.data if isinstance(changed, ir.TensorBox) else changed
    if isinstance(box, ir.StorageBox) and isinstance(box.data, ir.Buffer):
        ir.MutationLayoutSHOULDREMOVE.realize_into(value, box)
        return changed
    return original(changed, value, *rest, **options)


BUG = KnownBug(
    "view-of-replaced-buffer",
    "a masked write to an intermediate result raises KeyError if its value comes from a view of it",
    "",
    program_of(
        """
        v0 = aten.mm.default(x0, x0)
        v1 = aten.t.default(v0)
        v2 = aten.add.Scalar(v1, 1)
        v3 = aten.sum.default(v2)
        aten.index_put_.default(v0, [x1], v3)
        v4 = aten.mul.Scalar(v2, 3)
        return v4, v0
        """,
        view(3, 3),
        view(3, dtype=torch.bool),
    ),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "index_put_", "masked_fill_", "copy_"),
    rank=790,
)
