"""Inductor makes `as_strided_scatter` a write into a clone, which has another storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from aliasproof.corpus.inductor_passes import copy_operand, scatters_by_strides
from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import PASSES, mends


@mends(f"{PASSES}.reinplace:_decompose_scatter_mutating")
def mended(original: Callable[..., Any], graph: fx.Graph, node: fx.Node) -> Any:
    """The whole storage is cloned, so the strides and offset of the call mean the same.

    Torch clones the tensor: the clone starts at offset 0, without gaps.
    """
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    if node.target is reinplace._generalized_scatter and scatters_by_strides(node):
        copy_operand(node, 0)
        node.target = reinplace._inplace_generalized_scatter
    return original(graph, node)


BUG = KnownBug(
    "as-strided-scatter-of-clone",
    "Inductor applies the strides and offset of as_strided_scatter to a clone",
    "https://github.com/pytorch/pytorch/pull/186150",
    program_of(
        """
        v0 = aten.as_strided_scatter.default(x0, x1, [1], [1], 0)
        return (v0,)
        """,
        view(1, offset=1),
        view(1),
    ),
    ("inductor-reinplace", "inductor-fx"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "as_strided_scatter", "as_strided", "as_strided_"),
    rank=370,
)
