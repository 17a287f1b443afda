"""`auto_functionalized_v2` ignores the storage offset of a base when it slices the base."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aliasproof.corpus.functional_layouts import layout_of_value
from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._higher_order_ops.auto_functionalize:try_use_slice")
def mended(original: Callable[..., Any], base: Any, tensor: Any) -> Any:
    """Offsets count from the first element of the base.

    `try_use_slice` divides the storage offset of the view by the stride. That is the index of the
    view in its base if the base is at the start of its storage.
    """
    whole, part = layout_of_value(base), layout_of_value(tensor)
    part = replace(part, offset=part.offset - whole.offset)
    return original(replace(whole, offset=0), part)


BUG = KnownBug(
    "custom-slice-offset",
    "a custom operator that writes x[1:] writes another slice if x has a storage offset",
    "",
    program_of(
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
    plausible=lambda program: any(tensor.offset for tensor in program.inputs),
    rank=830,
)
