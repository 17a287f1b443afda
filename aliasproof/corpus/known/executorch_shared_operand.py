"""ExecuTorch gives two results the memory of one operand, which the second one still reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_outside


@mends_outside("executorch.exir.passes.reinplace:_is_safe_to_reinplace")
def mended(original: Callable[..., bool], node: Any, call: Any, *rest: Any) -> bool:
    """No later call reads the operand.

    Of a call that shares memory by an annotation, ExecuTorch does not note the operands as read.
    """
    order = {other: index for index, other in enumerate(node.graph.nodes)}
    read = any(user.op == "call_function" and order[user] > order[call] for user in node.users)
    return not read and original(node, call, *rest)


BUG = KnownBug(
    "executorch-shared-operand",
    "reinplace_extra_ops gives two results the memory of one operand",
    "",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.maximum.default(v0, x1)
        v2 = aten.minimum.default(v0, x1)
        return (v1, v2)
        """,
        view(4),
        view(4),
    ),
    ("executorch:shared-operands",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "minimum", "maximum"),
    rank=2150,
)
