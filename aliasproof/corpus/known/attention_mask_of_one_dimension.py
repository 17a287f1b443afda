"""Inductor's attention patterns match a mask of one dimension; its replacement needs two."""

from __future__ import annotations

from typing import Any

from torch import fx

from aliasproof.corpus.known_bug import KnownBug, attends, program_of, view
from aliasproof.corpus.mends import attends_if


@attends_if
def mended(match: Any) -> bool:
    """Attention with a mask of fewer than two dimensions is left as it is."""
    mask = match.kwargs.get("attn_mask")
    return not isinstance(mask, fx.Node) or mask.meta["val"].dim() >= 2


BUG = KnownBug(
    "attention-mask-of-one-dimension",
    "attention with a mask that has one dimension cannot be compiled",
    "",
    program_of(
        """
        v0 = aten.permute.default(x0, [0, 1, 3, 2])
        v1 = aten.expand.default(x0, [1, 1, 2, 2])
        v2 = aten.view.default(v1, [1, 2, 2])
        v3 = aten.expand.default(v0, [1, 1, 2, 2])
        v4 = aten.view.default(v3, [1, 2, 2])
        v5 = aten.bmm.default(v2, v4)
        v6 = aten._unsafe_view.default(v5, [1, 1, 2, 2])
        v7 = aten.div.Tensor(v6, 1.5)
        v8 = aten.add.Tensor(v7, x1)
        v9 = aten._softmax.default(v8, -1, False)
        v10 = aten.expand.default(v9, [1, 1, 2, 2])
        v11 = aten.view.default(v10, [1, 2, 2])
        v12 = aten.expand.default(x0, [1, 1, 2, 2])
        v13 = aten.view.default(v12, [1, 2, 2])
        v14 = aten.bmm.default(v11, v13)
        v15 = aten._unsafe_view.default(v14, [1, 1, 2, 2])
        return (v15,)
        """,
        view(1, 1, 2, 2),
        view(2),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=attends,
    rank=555,
)
