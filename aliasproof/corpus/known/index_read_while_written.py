"""An index that is computed from a tensor is read while that tensor is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._inductor.lowering:index_put_impl_")
def mended(original: Callable[..., Any], x: Any, indices: Any, *rest: Any, **options: Any) -> Any:
    """The indices are computed before the first element is written.

    `index_put_impl_` has done so for the values since pytorch/pytorch#139366, and not for indices.
    """
    from torch._inductor import ir  # noqa: PLC0415 - takes two seconds

    for index in indices:
        if isinstance(index, ir.TensorBox):
            index.realize()
    return original(x, indices, *rest, **options)


BUG = KnownBug(
    "index-read-while-written",
    "the index of x[index] = value is computed element by element while x is written",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        v1 = aten.remainder.Scalar(v0, 3)
        aten.index_put_.default(x0, [v1], x1)
        return ()
        """,
        view(3, dtype=torch.int64),
        view(dtype=torch.int64),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(
        program, "index_put_", "index_put", "index_fill_", "index_copy_", "index_add_"
    ),
    vector_bits=(0, 512),
    rank=680,
)
