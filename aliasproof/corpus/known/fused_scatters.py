"""Inductor fuses two scatters, and returns a view of the outer for the inner one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from aliasproof.corpus.inductor_passes import copy_operand
from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import PASSES, mends


@mends(f"{PASSES}.reinplace:canonicalize_view_scatter_ops")
def mended(original: Callable[..., Any], graph: fx.Graph) -> None:
    """Scatters whose inner result has another use are not fused.

    The pass makes that result a view of the fused one, and both can be returned.
    """
    from torch._inductor.fx_passes.reinplace import _SCATTER_OP_TO_VIEW  # noqa: PLC0415

    for node in graph.nodes:
        if node.target in _SCATTER_OP_TO_VIEW:
            inner = node.args[1]
            if inner.target in _SCATTER_OP_TO_VIEW and len(inner.users) > 1:
                copy_operand(node, 1)
    original(graph)


BUG = KnownBug(
    "fused-scatters",
    "Inductor fuses nested scatters, so that the results share memory",
    "",
    program_of(
        """
        v0 = aten.slice.Tensor(x0, 0, 0, 1)
        v1 = aten.select_scatter.default(v0, x1, 0, 0)
        v2 = aten.slice_scatter.default(x0, v1, 0, 0, 1)
        return v1, v2
        """,
        view(2),
        view(),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    rank=590,
)
