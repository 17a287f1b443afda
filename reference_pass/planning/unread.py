"""Results whose contents nobody reads: any memory is as good.

    zeros = new_zeros(x, [4])                   y = empty
    y = cat([zeros, b])                         z = slice_scatter(y, c, ...)
    z = slice_scatter(y, c, ...)  # all of it

Such a result is used for its sizes alone, or is the base of scatters that store over all that is
read of it. What only it is computed from is dead code then.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.operator_forms import aten, facts, writes
from aliasproof.reference_pass.calls.storages import same_layout
from aliasproof.reference_pass.functionalize import has_effect
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.regions import Region
from aliasproof.reference_pass.semantics import Semantics
from aliasproof.reference_pass.views import SCATTERS


def forget_unread(graph: fx.Graph, semantics: Semantics) -> None:
    """Put other memory in the place of each result of fixed size that nobody reads.

    The graph is functional, and its metadata are true. The caller has entered `on_fakes`.
    """
    while _forget(graph, semantics):  # once more: its operands may be unread now
        graph.eliminate_dead_code(has_effect)


def _forget(graph: fx.Graph, semantics: Semantics) -> bool:
    liveness, emit = Liveness(graph, semantics), Emitter(graph, semantics)
    changed = False
    for node in list(graph.nodes):
        if not _is_replaceable(node) or node in liveness.views or not _is_unread(node, liveness):
            continue
        value, name = node.meta["val"], node.name
        memory = node.args[0] if node.target in SCATTERS else None  # where it is, if in place
        if memory is None:
            like = {"dtype": value.dtype, "device": value.device}
            layout = list(value.shape), list(value.stride())
            first = min(node.users, key=liveness.position.__getitem__)
            with graph.inserting_before(first):
                memory = emit.call(aten.empty_strided.default, *layout, **like)
            liveness.position[memory] = liveness.position[first]
        elif not _is_alike(memory, value):
            continue
        liveness.replace(node, memory, value)
        graph.erase_node(node)
        if memory.target is aten.empty_strided.default:
            memory._rename(name)
        changed = True
    return changed


def _is_unread(node: fx.Node, liveness: Liveness) -> bool:
    value = node.meta["val"]
    at = liveness.position[node]
    if liveness.escapes(value):
        return False  # the caller sees its memory
    reads = liveness.later_reads(value, Region.of(value), at)
    return all(read.overwrites for _, read in reads)


def _is_alike(base: fx.Node, value: torch.Tensor) -> bool:
    own = base.meta["val"]
    places = [(each.storage_offset(), each.untyped_storage().nbytes()) for each in (own, value)]
    return same_layout(own, value) and places[0] == places[1]


def _is_replaceable(node: fx.Node) -> bool:
    """True for a call without effect, with one result of fixed size that begins its storage."""
    op, value = node.target, node.meta.get("val")
    if not isinstance(op, OpOverload) or not isinstance(value, torch.Tensor) or not node.users:
        return False
    if (
        op.namespace != "aten"
        or writes(op)
        or facts(op).random
        or value.is_conj()
        or value.is_neg()
    ):
        return False
    layout = (*value.shape, *value.stride(), value.untyped_storage().nbytes())
    fixed = all(isinstance(size, int) for size in layout)
    return fixed and value.storage_offset() == 0 and op is not aten.empty_strided.default
