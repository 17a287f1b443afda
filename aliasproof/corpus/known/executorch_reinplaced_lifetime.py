"""ExecuTorch plans memory as if nobody read the result of an operator in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_outside


@mends_outside("executorch.exir.memory_planning:update_all_tensors_lifetime")
def mended(original: Callable[..., Any], module: Any, *rest: Any) -> Any:
    """What is written lives as long as the result, which is the same memory, is read.

    `collect_specs_from_nodes` leaves out operators in place, also where it looks at what a node
    reads.
    """
    specs = original(module, *rest)
    order = {node: index for index, node in enumerate(module.graph.nodes)}
    for node in filter(_in_place, order):
        written = node.args[0].meta["spec"]
        last = max(order[reader] for reader in _readers(node))
        written.lifetime[1] = max(written.lifetime[1], last)
    return specs


def _in_place(node: Any) -> bool:
    return node.op == "call_function" and "index_put_." in str(node.target)


def _readers(node: Any) -> Iterator[Any]:
    """The node, and what reads it or what shares its memory."""
    yield node
    for user in node.users:
        yield user
        if _in_place(user) or "view" in str(user.target):
            yield from _readers(user)


BUG = KnownBug(
    "executorch-reinplaced-lifetime",
    "the memory of index_put_ is used again while its result is still read",
    "",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.index_put.default(v0, [x1], x2)
        v2 = aten.neg.default(x0)
        v3 = aten.neg.default(v2)
        return (v1, v3)
        """,
        view(3),
        view(1, dtype=torch.int64),
        view(1),
    ),
    ("executorch:reinplaced",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "index_put", "index_put_"),
    rank=2115,
)
