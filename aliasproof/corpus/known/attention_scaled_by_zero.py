"""Inductor divides 1 by the number that scales attention, which may be 0."""

from __future__ import annotations

from typing import Any

from aliasproof.corpus.known_bug import KnownBug, attends, program_of, view
from aliasproof.corpus.mends import attends_if


@attends_if
def mended(match: Any) -> bool:
    """Attention that is divided by 0 is left as it is."""
    return not any(isinstance(it, int | float) and it == 0 for it in match.kwargs.values())


BUG = KnownBug(
    "attention-scaled-by-zero",
    "attention whose products are divided by 0 cannot be compiled",
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
        v7 = aten.div.Tensor(v6, 0.0)
        v8 = aten._softmax.default(v7, -1, False)
        v9 = aten.expand.default(v8, [1, 1, 2, 2])
        v10 = aten.view.default(v9, [1, 2, 2])
        v11 = aten.expand.default(x0, [1, 1, 2, 2])
        v12 = aten.view.default(v11, [1, 2, 2])
        v13 = aten.bmm.default(v10, v12)
        v14 = aten._unsafe_view.default(v13, [1, 1, 2, 2])
        return (v14,)
        """,
        view(1, 1, 2, 2),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=attends,
    rank=556,
)
