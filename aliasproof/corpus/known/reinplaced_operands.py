"""FX reinplacing lets an op write to an operand that overlaps another operand."""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch.fx.passes.reinplace:_get_all_later_node_usages")
def mended(
    original: Callable[..., set[fx.Node]], aliases: set[fx.Node], index: int
) -> set[fx.Node]:
    """An op that reads another alias of its first operand is not put in place.

    Torch asks only whether the other operand is the same node, and not whether it is in a list.
    """
    users = {user for alias in aliases for user in alias.users}
    # The op itself counts as a later use of the alias that it reads: that keeps it functional.
    overlapping = {
        user for user in users if user.meta.get("node_idx") == index and _reads(user, aliases) > 1
    }
    return original(aliases, index) | overlapping


def _reads(user: fx.Node, aliases: set[fx.Node]) -> int:
    """How many operands of a node are among these aliases."""
    read: list[fx.Node] = []
    fx.map_arg((user.args, user.kwargs), read.append)
    return sum(operand in aliases for operand in read)


BUG = KnownBug(
    "reinplaced-operands",
    "FX reinplacing ignores that the operand it overwrites overlaps another operand",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 0)
        v1 = aten.transpose.int(v0, 0, 1)
        v2 = aten.add.Tensor(v0, v1)
        return ()
        """,
        view(2, 2),
    ),
    ("fx-reinplace",),
    ("2.13", "2.15"),
    mended,
    rank=200,
)
