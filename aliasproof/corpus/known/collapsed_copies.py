"""Inductor removes two copies of one tensor that are both returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from aliasproof.corpus.inductor_passes import hidden_from_noops
from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import PASSES, mends


@mends(f"{PASSES}.post_grad:remove_noop_ops")
def mended(original: Callable[..., Any], graph: fx.Graph) -> None:
    """The pass runs once for each copy, so that it knows what is returned by then.

    Torch looks up which storages are returned before it removes anything. After the first copy is
    removed, the tensor itself is returned.
    """
    from torch._inductor.fx_passes.post_grad import noop_registry  # noqa: PLC0415

    restores = [
        hidden_from_noops(node)
        for node in graph.nodes
        if node.target in noop_registry and any(use.op == "output" for use in node.users)
    ]
    original(graph)
    for restore in restores:
        restore()
        original(graph)


BUG = KnownBug(
    "collapsed-copies",
    "Inductor returns one tensor twice for two clones of it",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        v1 = aten.clone.default(v0)
        v2 = aten.clone.default(v0)
        return v1, v2
        """,
        view(),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    rank=650,
)
