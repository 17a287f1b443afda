"""A view that `as_strided` reads is computed alone, without the memory around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx
from torch._ops import OpOverload

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._inductor.graph:GraphLowering.run_node")
def mended(original: Callable[..., Any], self: Any, node: fx.Node) -> Any:
    """The tensor that was viewed is computed as a whole, with the strides that it has in eager.

    `GraphLowering.run_node` asks only whether the operand of `as_strided` is computed so, and that
    operand is a view. Inductor then computes the elements of the view, and `as_strided` reads
    memory that belongs to nothing.
    """
    if _viewed_by_as_strided(node):
        node.meta["inductor_realize_to_strides"] = True
    return original(self, node)


def _viewed_by_as_strided(node: fx.Node) -> bool:
    if node.op != "call_function" or _is_view(node):
        return False
    views = [user for user in node.users if _is_view(user)]
    while views:
        last = views.pop()
        if "as_strided" in str(last.target):
            return True
        views += [user for user in last.users if _is_view(user)]
    return False


def _is_view(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target.is_view


BUG = KnownBug(
    "as-strided-of-view",
    "as_strided of a view of an intermediate result reads memory behind the view",
    "https://github.com/pytorch/pytorch/issues/197431",
    program_of(
        """
        v0 = aten.add.Tensor(x0, x0)
        v1 = aten.expand.default(v0, [2, 2])
        v2 = aten.as_strided.default(v1, [2], [1], 0)
        return (v2,)
        """,
        view(2),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "as_strided", "as_strided_"),
    rank=670,
)
