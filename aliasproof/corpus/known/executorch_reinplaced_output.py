"""ExecuTorch puts index_put in place on a value that is an output of the program, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_outside


@mends_outside("executorch.exir.passes.reinplace:_is_safe_to_reinplace")
def mended(original: Callable[..., bool], node: Any, *rest: Any) -> bool:
    """The caller reads outputs. ExecuTorch notes the operands of calls alone as read later."""
    returned = any(user.op == "output" for user in node.users)
    return not returned and original(node, *rest)


BUG = KnownBug(
    "executorch-reinplaced-output",
    "run_reinplace_pass overwrites an output of the program by index_put_",
    "",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.index_put.default(v0, [x1], x2)
        return (v0, v1)
        """,
        view(3),
        view(1, dtype=torch.int64),
        view(1),
    ),
    ("executorch:reinplaced",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "index_put", "index_put_", "minimum", "maximum"),
    rank=2120,
)
