"""ExecuTorch puts index_put in place on a value of which a view is read later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_outside


@mends_outside("executorch.exir.passes.reinplace:_is_safe_to_reinplace")
def mended(original: Callable[..., bool], node: Any, call: Any, *rest: Any) -> bool:
    """A `view_copy` will be a view (`ReplaceViewCopyWithViewPass`): its readers count, too."""
    order = {other: index for index, other in enumerate(node.graph.nodes)}
    readers = (user for alias in _aliases(node) for user in alias.users if alias is not node)
    read = any(order[user] >= order[call] for user in readers)
    return not read and original(node, call, *rest)


def _aliases(node: Any) -> Iterator[Any]:
    """What will share the memory of a node."""
    base = node
    while _is_view(base):
        base = base.args[0]
    found = [base]
    for alias in found:
        found += filter(_is_view, alias.users)
        yield alias


def _is_view(node: Any) -> bool:
    return node.op == "call_function" and "view_copy" in str(node.target)


BUG = KnownBug(
    "executorch-reinplaced-view",
    "run_reinplace_pass overwrites a value of which a view is read later",
    "",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.view.default(v0, [2, 2])
        v2 = aten.index_put.default(v0, [x1], x2)
        v3 = aten.neg.default(v1)
        return (v2, v3)
        """,
        view(4),
        view(1, dtype=torch.int64),
        view(1),
    ),
    ("executorch:reinplaced",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "index_put", "index_put_", "minimum", "maximum"),
    rank=2130,
)
