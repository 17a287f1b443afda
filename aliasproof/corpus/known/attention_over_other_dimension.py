"""Inductor's attention patterns match a softmax over any dimension, and attend over the last."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, attends, program_of, view
from aliasproof.corpus.mends import attends_if

aten = torch.ops.aten
_REDUCES = {aten.amax.default, aten.sum.dim_IntList, aten._softmax.default}


@attends_if
def mended(match: Any) -> bool:
    """What is reduced over another dimension than the last is left as it is."""
    return not any(map(_over_another, match.nodes))


def _over_another(node: fx.Node) -> bool:
    if node.target not in _REDUCES:
        return False
    operand = node.args[0]
    assert isinstance(operand, fx.Node)
    given: Any = node.args[1]
    rank = operand.meta["val"].dim()
    dims = [given] if isinstance(given, int) else given
    return [dim % rank for dim in dims] != [rank - 1]


BUG = KnownBug(
    "attention-over-other-dimension",
    "a softmax over another dimension than the last becomes attention, which is over the last",
    "https://github.com/pytorch/pytorch/issues/196468",
    program_of(
        """
        v0 = aten.permute.default(x0, [0, 2, 1, 3])
        v1 = aten.permute.default(x0, [0, 2, 1, 3])
        v2 = aten.permute.default(v1, [0, 1, 3, 2])
        v3 = aten.expand.default(v0, [2, 2, 4, 2])
        v4 = aten.clone.default(v3, memory_format=0)
        v5 = aten._unsafe_view.default(v4, [4, 4, 2])
        v6 = aten.expand.default(v2, [2, 2, 2, 4])
        v7 = aten.clone.default(v6, memory_format=0)
        v8 = aten._unsafe_view.default(v7, [4, 2, 4])
        v9 = aten.bmm.default(v5, v8)
        v10 = aten._unsafe_view.default(v9, [2, 2, 4, 4])
        v11 = aten._softmax.default(v10, 0, False)
        v12 = aten.expand.default(v11, [2, 2, 4, 4])
        v13 = aten.view.default(v12, [4, 4, 4])
        v14 = aten.expand.default(v1, [2, 2, 4, 2])
        v15 = aten.clone.default(v14, memory_format=0)
        v16 = aten._unsafe_view.default(v15, [4, 4, 2])
        v17 = aten.bmm.default(v13, v16)
        v18 = aten._unsafe_view.default(v17, [2, 2, 4, 2])
        return (v18,)
        """,
        view(2, 4, 2, 2),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=attends,
    rank=551,
)
