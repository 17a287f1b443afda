"""ExecuTorch gives a result the memory of an operand that was itself computed in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_outside


@mends_outside("executorch.exir.passes.memory_planning_pass:_move_memory_meta_to_spec")
def mended(original: Callable[..., None], node: Any) -> None:
    """Such an operand has the place of what was written, which the plan gives it later."""
    operand = node.meta.get("_share_alloc_with_arg_idx")
    if operand is not None and "index_put_" in str(node.args[operand].target):
        del node.meta["_share_alloc_with_arg_idx"]
    original(node)


BUG = KnownBug(
    "executorch-shared-written",
    "reinplace_extra_ops after index_put_ ends in 'storage_base TensorSpec must have a lifetime'",
    "",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.index_put.default(v0, [x1], x2)
        v2 = aten.minimum.default(v1, x0)
        return (v2,)
        """,
        view(3),
        view(1, dtype=torch.int64),
        view(1),
    ),
    ("executorch:shared-operands",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "minimum", "maximum"),
    rank=2180,
)
