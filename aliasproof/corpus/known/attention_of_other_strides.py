"""The result of a matched attention has the strides of the query, not those of a product."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, attends, program_of, view

BUG = KnownBug(
    "attention-of-other-strides",
    "attention of a permuted query is returned with the query's strides, dense ones in eager",
    "",
    program_of(
        """
        v0 = aten.permute.default(x0, [0, 2, 1, 3])
        v1 = aten.permute.default(x1, [0, 2, 1, 3])
        v2 = aten.permute.default(v1, [0, 1, 3, 2])
        v3 = aten.expand.default(v0, [2, 3, 4, 8])
        v4 = aten.clone.default(v3, memory_format=0)
        v5 = aten._unsafe_view.default(v4, [6, 4, 8])
        v6 = aten.expand.default(v2, [2, 3, 8, 4])
        v7 = aten.clone.default(v6, memory_format=0)
        v8 = aten._unsafe_view.default(v7, [6, 8, 4])
        v9 = aten.bmm.default(v5, v8)
        v10 = aten._unsafe_view.default(v9, [2, 3, 4, 4])
        v11 = aten.div.Tensor(v10, 3.0)
        v12 = aten.add.Tensor(v11, x3)
        v13 = aten._softmax.default(v12, -1, False)
        v14 = aten.expand.default(v13, [2, 3, 4, 4])
        v15 = aten.view.default(v14, [6, 4, 4])
        v16 = aten.permute.default(x2, [0, 2, 1, 3])
        v17 = aten.expand.default(v16, [2, 3, 4, 8])
        v18 = aten.clone.default(v17, memory_format=0)
        v19 = aten._unsafe_view.default(v18, [6, 4, 8])
        v20 = aten.bmm.default(v15, v19)
        v21 = aten._unsafe_view.default(v20, [2, 3, 4, 8])
        return (v21,)
        """,
        view(2, 4, 3, 8),
        view(2, 4, 3, 8),
        view(2, 4, 3, 8),
        view(2, 1, 4, 4),
    ),
    ("inductor",),
    ("2.13",),
    # The replacement cannot be mended: its kernel gives the strides of the query.
    mark=Mark(("metadata",), "wrong stride", attends),
    plausible=attends,
    rank=557,
)
