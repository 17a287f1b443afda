"""Inductor's 9th and 10th attention patterns forget that the result was cast to float16."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, attends, program_of, view
from aliasproof.corpus.mends import attends_if


@attends_if
def mended(match: Any) -> bool:
    """Attention has the dtype of its query, so what has another one is left as it is."""
    query = match.kwargs["query"]
    result: torch.Tensor = match.output_node().meta["val"]
    return not isinstance(query, fx.Node) or query.meta["val"].dtype == result.dtype


BUG = KnownBug(
    "attention-without-cast",
    "attention of float32 whose weights are cast to float16 is returned as float32",
    "",
    program_of(
        """
        v0 = aten.permute.default(x0, [0, 2, 1, 3])
        v1 = aten.div.Tensor(v0, 2.0)
        v2 = aten.permute.default(x0, [0, 2, 1, 3])
        v3 = aten.permute.default(x0, [0, 2, 1, 3])
        v4 = aten.permute.default(v2, [0, 1, 3, 2])
        v5 = aten.expand.default(v1, [2, 2, 2, 2])
        v6 = aten.clone.default(v5, memory_format=0)
        v7 = aten._unsafe_view.default(v6, [4, 2, 2])
        v8 = aten.expand.default(v4, [2, 2, 2, 2])
        v9 = aten.clone.default(v8, memory_format=0)
        v10 = aten._unsafe_view.default(v9, [4, 2, 2])
        v11 = aten.bmm.default(v7, v10)
        v12 = aten._unsafe_view.default(v11, [2, 2, 2, 2])
        v13 = aten._softmax.default(v12, -1, False)
        v14 = aten._to_copy.default(v13, dtype=torch.float16)
        v15 = aten._to_copy.default(v3, dtype=torch.float16)
        v16 = aten.expand.default(v14, [2, 2, 2, 2])
        v17 = aten.view.default(v16, [4, 2, 2])
        v18 = aten.expand.default(v15, [2, 2, 2, 2])
        v19 = aten.clone.default(v18, memory_format=0)
        v20 = aten._unsafe_view.default(v19, [4, 2, 2])
        v21 = aten.bmm.default(v17, v20)
        v22 = aten._unsafe_view.default(v21, [2, 2, 2, 2])
        return (v22,)
        """,
        view(2, 2, 2, 2),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=attends,
    rank=554,
)
