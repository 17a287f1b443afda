"""ExecuTorch puts index_put in place on a value that is among its other operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_outside


@mends_outside("executorch.exir.passes.reinplace:_is_safe_to_reinplace")
def mended(original: Callable[..., bool], node: Any, call: Any, *rest: Any) -> bool:
    """The kernel reads the other operands while it writes."""
    again = sum(operand is node for operand in pytree.tree_leaves((call.args, call.kwargs))) > 1
    return not again and original(node, call, *rest)


BUG = KnownBug(
    "executorch-reinplaced-values",
    "run_reinplace_pass puts index_put in place on its own values",
    "",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.flip.default(x1, [0])
        v2 = aten.index_put.default(v0, [v1], v0)
        return (v2,)
        """,
        view(4),
        view(4, dtype=torch.int64),
    ),
    ("executorch:reinplaced",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "index_put", "index_put_"),
    rank=2140,
)
