"""Calls that copy, or read, a storage beyond what their operand shows.

Some functional ops copy the whole storage of an operand, and not only what the operand shows. An
`as_strided` of the result can then show bytes around the operand:

    copy = slice_scatter(x, y, ...)         around = copy.as_strided(...)
"""

from __future__ import annotations

import torch
from torch import fx

from aliasproof.reference_pass.calls.nested import on_values
from aliasproof.reference_pass.calls.operand_reads import depends_on_location
from aliasproof.reference_pass.calls.operator_forms import SCATTERS, aten
from aliasproof.reference_pass.calls.regions import Region, contains
from aliasproof.reference_pass.calls.storages import storage_of, value_of

# These copy the whole storage of their first operand, not only the bytes that the operand covers.
# So the result has the operand's offset, and `as_strided` of the result shows bytes from around the
# operand. They raise if the storage ends with a part of an element.
COPIES_STORAGE = {aten.copy.default, *SCATTERS}


def copies_whole_storage(op: object) -> bool:
    """True for a `copy`, or a scatter (`COPIES_STORAGE`)."""
    return op in COPIES_STORAGE


def reads_whole(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that read more of a storage than their first operand shows.

    `as_strided_copy` does. A copy or a scatter does if a later `as_strided` shows more of its own
    storage than its result shows.
    """
    copies: dict[int, fx.Node] = {}
    seen: dict[int, list[torch.Tensor]] = {}
    whole: set[fx.Node] = set()
    for node in graph.nodes:
        # Its result is on a storage of its own, at the offset of its operand.
        if copies_whole_storage(node.target):
            copies[storage_of(node.meta["val"])] = node
        elif depends_on_location(node.target) and node.target not in SCATTERS:
            args, kwargs = on_values((node.args, node.kwargs), value_of)
            shown = aten.as_strided.default(*args, **kwargs)
            seen.setdefault(storage_of(shown), []).append(shown)
            whole.add(node)
    # Last copy first: what is seen of a copy of a copy was in the original.
    copied: set[int] = set()
    for storage, node in reversed(copies.items()):
        region = Region.of(node.meta["val"])
        if storage in copied or any(
            not contains(region, Region.of(shown)) for shown in seen.get(storage, ())
        ):
            whole.add(node)
            copied.add(storage_of(node.all_input_nodes[0].meta["val"]))
    return whole
