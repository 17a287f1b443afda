"""What Inductor's 15th attention pattern matches, with masked scores: two known bugs share it."""

from __future__ import annotations

from aliasproof.corpus.known_bug import program_of, view
from aliasproof.ir.program import Input, Program


def masked_attention(mask: Input, fill: str) -> Program:
    """Attention whose scores are filled where the mask, of two by two elements, is 0."""
    return program_of(
        f"""
        v0 = aten.permute.default(x0, [0, 2, 1, 3])
        v1 = aten.permute.default(x1, [0, 2, 1, 3])
        v2 = aten.permute.default(v1, [0, 1, 3, 2])
        v3 = aten.expand.default(v0, [2, 2, 2, 2])
        v4 = aten.clone.default(v3, memory_format=0)
        v5 = aten._unsafe_view.default(v4, [4, 2, 2])
        v6 = aten.expand.default(v2, [2, 2, 2, 2])
        v7 = aten.clone.default(v6, memory_format=0)
        v8 = aten._unsafe_view.default(v7, [4, 2, 2])
        v9 = aten.bmm.default(v5, v8)
        v10 = aten._unsafe_view.default(v9, [2, 2, 2, 2])
        v11 = aten.div.Tensor(v10, 3.0)
        v12 = aten.eq.Scalar(x3, 0)
        v13 = aten.view.default(v12, [2, 1, 1, 2])
        v14 = aten.expand.default(v13, [2, 2, 2, 2])
        v15 = aten.full.default([], {fill})
        v16 = aten.masked_fill.Tensor(v11, v14, v15)
        v17 = aten._softmax.default(v16, -1, False)
        v18 = aten.expand.default(v17, [2, 2, 2, 2])
        v19 = aten.view.default(v18, [4, 2, 2])
        v20 = aten.permute.default(x2, [0, 2, 1, 3])
        v21 = aten.expand.default(v20, [2, 2, 2, 2])
        v22 = aten.clone.default(v21, memory_format=0)
        v23 = aten._unsafe_view.default(v22, [4, 2, 2])
        v24 = aten.bmm.default(v19, v23)
        v25 = aten._unsafe_view.default(v24, [2, 2, 2, 2])
        return (v25,)
        """,
        view(2, 2, 2, 2),
        view(2, 2, 2, 2),
        view(2, 2, 2, 2),
        mask,
    )
