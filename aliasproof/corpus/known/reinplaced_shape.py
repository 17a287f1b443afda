"""FX reinplacing compares numbers of elements where it means to compare sizes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch.fx.passes.reinplace:_get_all_later_node_usages")
def mended(
    original: Callable[..., set[fx.Node]], aliases: set[fx.Node], index: int
) -> set[fx.Node]:
    """An op whose result has other sizes than its first operand is not put in place."""
    users = {user for alias in aliases for user in alias.users}
    # The op itself counts as a later use of its operand: that keeps it functional.
    resized = {
        user for user in users if user.meta.get("node_idx") == index and _has_other_sizes(user)
    }
    return original(aliases, index) | resized


def _has_other_sizes(node: fx.Node) -> bool:
    operand = node.args[0]
    if not isinstance(operand, fx.Node):
        return False
    values = [it.meta["fake_result"] for it in (operand, node)]
    tensors = all(isinstance(value, torch.Tensor) for value in values)
    return tensors and values[0].shape != values[1].shape


BUG = KnownBug(
    "reinplaced-shape",
    "FX reinplacing puts an op in place whose result has more dimensions than its operand",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        v1 = aten.add.Tensor(v0, x1)
        return ()
        """,
        view(2),
        view(1, 2),
    ),
    ("fx-reinplace",),
    ("2.13",),
    mended,
    rank=955,
)
