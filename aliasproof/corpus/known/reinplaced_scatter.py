"""FX reinplacing removes a scatter that does not undo the view it is matched with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch.fx.passes.reinplace:_get_view_inverse_node_usages")
def mended(original: Callable[..., Any], *args: Any) -> set[fx.Node]:
    """No scatter is removed because a view of the same layout exists.

    Torch compares layouts only. It does not ask whether the scatter writes the view back into the
    base that the view was taken from.
    """
    return set()


BUG = KnownBug(
    "reinplaced-scatter",
    "FX reinplacing removes a scatter that is not the inverse of the view",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 0)
        v1 = aten.select.int(v0, 0, 2)
        v2 = aten.add.Scalar(v0, 0)
        v3 = aten.select_scatter.default(v0, v1, 0, 2)
        return v2, v3
        """,
        view(3),
    ),
    ("fx-reinplace",),
    ("2.13", "2.15"),
    mended,
    rank=190,
)
