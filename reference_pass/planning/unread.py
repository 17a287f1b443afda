"""Results whose contents nothing reads: any other memory will do.

    y = cat([zeros, b])                         y = empty
    z = slice_scatter(y, c, ...)  # all of it   z = slice_scatter(y, c, ...)

Only the sizes of such a result are used, or it is the base of scatters that store over all bytes
that are read. Calls that compute only such a result are then dead code.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.graphs import erase_dead
from aliasproof.reference_pass.calls.operator_forms import SCATTERS, aten, facts, writes
from aliasproof.reference_pass.calls.regions import Region
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.semantics import Semantics

# Arguments with indices: a call with one that is out of range raises, even if its result is unread.
_INDICES = frozenset(["index", "indices"])


def forget_unread(graph: fx.Graph, semantics: Semantics) -> None:
    """Replace each result of fixed size that nothing reads by other memory.

    The graph is functional and has true metadata. The caller has entered `on_fakes`.
    """
    while _forget(graph, semantics):  # again, since the operands may be unread now
        erase_dead(graph)


def _forget(graph: fx.Graph, semantics: Semantics) -> bool:
    liveness, emit = Liveness(graph, semantics), Emitter(graph, semantics)
    unread = [node for node in graph.nodes if _is_unread(node, liveness)]
    for node in unread:
        value, name = node.meta["val"], node.name
        first = min(node.users, key=liveness.position.__getitem__)
        with graph.inserting_before(first):
            # For a scatter, its base, if that has the same layout; else uninitialised memory.
            base = node.args[0] if node.target in SCATTERS else None
            if isinstance(base, fx.Node) and _layout(base) == _layout(node):
                memory = base
            else:
                layout = list(value.shape), list(value.stride())
                like = {"dtype": value.dtype, "device": value.device}
                memory = emit.call(aten.empty_strided.default, *layout, **like)
        liveness.position.setdefault(memory, liveness.position[first])
        liveness.replace(node, memory, value)
        graph.erase_node(node)
        if memory.target is aten.empty_strided.default:
            memory._rename(name)
    return bool(unread)


def _is_unread(node: fx.Node, liveness: Liveness) -> bool:
    op, value = node.target, node.meta.get("val")
    if not isinstance(op, OpOverload) or not isinstance(value, torch.Tensor) or not node.users:
        return False
    if op.namespace != "aten" or writes(op) or facts(op).random or node in liveness.views:
        return False
    if _INDICES.intersection(facts(op).names):
        return False
    is_new = op is not aten.empty_strided.default and value.storage_offset() == 0
    is_new = is_new and not value.is_conj() and not value.is_neg()
    if not is_new or not all(isinstance(size, int) for size in _layout(node)):
        return False
    # The caller sees the memory of a returned result, too. A node that only overwrites reads
    # nothing.
    reads = liveness.later_reads(value, Region.of(value), liveness.position[node])
    return not liveness.returned_in(value) and all(read.overwrites for _, read in reads)


def _layout(node: fx.Node) -> tuple[object, ...]:
    value = node.meta["val"]
    place = value.storage_offset(), value.untyped_storage().nbytes()
    return (*value.shape, *value.stride(), *place, value.is_conj(), value.is_neg())
