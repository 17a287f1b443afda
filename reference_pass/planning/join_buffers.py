"""Which parts of a concatenation are computed in its buffer, and the graph with that buffer.

A part is computed in the buffer by the call that allocates its storage, its *root*. That is the
call of the part itself, or one before it, if the part is a view of the root or is written over it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import fx

from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.planning.joins import Join, join_of
from aliasproof.reference_pass.planning.offers import can_be_elsewhere
from aliasproof.reference_pass.planning.timeline import Lifetime, Timeline
from aliasproof.reference_pass.semantics import Semantics


@dataclass(frozen=True, slots=True)
class BufferPart:
    """A part that can be computed in a buffer, from time `start` on, when its root runs.

    `life` is that of the storage which it needs otherwise.
    """

    node: fx.Node
    root: fx.Node
    start: int
    life: Lifetime


def join_in_buffers(
    graph: fx.Graph,
    semantics: Semantics,
    timeline: Timeline,
    without: Collection[str] = (),
    marked: Collection[str] = (),
) -> dict[str, str]:
    """Turn joins of a functional graph into stores, where no peak rises for it.

    `timeline` is that of the same graph, reinplaced as it is. Returns, by the name of each root
    that can be computed in a buffer, the name of its part. Roots named in `without` cannot. What is
    `marked` stays as it is.
    """
    liveness = Liveness(graph, semantics)
    live, roots = list(timeline.live), _roots(graph, timeline)
    stored: dict[str, str] = {}
    unmarked = [node for node in graph.nodes if node.name not in marked]
    for join in filter(None, map(join_of, unmarked)):
        if (own := _storage_of_parts(join, roots, liveness)) is not None:
            joined = _stored_early(own.node, join, Emitter(graph, semantics), liveness)
            if whole := roots.get(join.node):  # its other views are on the storage of parts, too
                own.life = replace(own.life, dies=max(own.life.dies, whole.life.dies))
                whole.node, whole.life = own.node, own.life
            roots[joined] = own
            continue
        movable = [
            part
            for part in _parts(join, roots, liveness)
            if part.root.name not in stored
            and part.root.name not in without
            and part.root.name not in marked
        ]
        parts = _worth_it(join, movable, roots, live, liveness.position[join.node])
        if not parts:
            continue
        buffer, joined = _store(join, parts, Emitter(graph, semantics))
        stored |= {part.root.name: part.node.name for part in parts}
        liveness.position[buffer] = parts[0].start
        liveness.position[joined] = liveness.position[join.node]
        if join.node in roots:  # now the buffer is what allocates, and may be part of a larger one
            roots[join.node].node = buffer
            roots[joined] = roots[join.node]
    return stored


@dataclass(slots=True, eq=False)
class Root:
    """The call that allocates a storage, and the life of the storage."""

    node: fx.Node
    life: Lifetime


Roots: TypeAlias = dict[fx.Node, Root]  # by each node on the storage


def _roots(graph: fx.Graph, timeline: Timeline) -> Roots:
    nodes = {node.name: node for node in graph.nodes}
    made = {
        life.node.name: Root(nodes[life.node.name], life)
        for life in timeline.lives.values()
        if life.node.name in nodes
    }
    return {
        nodes[name]: made[life.node.name]
        for name, life in timeline.lives.items()
        if name in nodes and life.node.name in made
    }


def _storage_of_parts(join: Join, roots: Roots, liveness: Liveness) -> Root | None:
    """The storage that all parts are in, if it has the layout of the whole: then that is stored.

    Where each part is in its place there already, as in `cat([p.exp(), q.sin()])` of the halves p
    and q of one tensor, the stores are of a tensor into itself, and nothing is left of them.
    """
    root = roots.get(join.parts[0][0])
    if root is None or join.base is not None or join.fill is not None:
        return None
    if any(part not in roots or roots[part].node is not root.node for part, _ in join.parts):
        return None
    value, result = root.node.meta["val"], join.node.meta["val"]
    is_alike = (value.dtype, value.device, value.shape, value.stride()) == (
        *(result.dtype, result.device, result.shape, result.stride()),
    )
    is_whole = value.untyped_storage().nbytes() == result.untyped_storage().nbytes()
    return root if is_alike and is_whole and not liveness.returned_in(value) else None


def _parts(join: Join, roots: Roots, liveness: Liveness) -> Iterator[BufferPart]:
    """The parts that can be computed elsewhere, and that nobody keeps."""
    for node in dict.fromkeys(part for part, _ in join.parts):
        if node not in roots:  # it is in an input
            continue
        root, life, value = roots[node].node, roots[node].life, node.meta["val"]
        if (
            can_be_elsewhere(root)
            and value.numel() == root.meta["val"].numel() > 0
            and not liveness.returned_in(value)
            and _has_base(join, liveness.position[root], roots, liveness)
        ):
            yield BufferPart(node, root, liveness.position[root], life)


def _has_base(join: Join, start: int, roots: Roots, liveness: Liveness) -> bool:
    """True unless the buffer starts as a copy of a base that is made later, or can be stored into.

    Then the scatter is in place, and allocates nothing.
    """
    if join.base is None:
        return True
    allocates = join.node in roots and roots[join.node].node is join.node
    return allocates and liveness.position[join.base] < start


# --- the bytes that it costs ----------------------------------------------------------------------


def _worth_it(
    join: Join, movable: list[BufferPart], roots: Roots, live: list[int], at: int
) -> list[BufferPart]:
    """The parts whose move into the buffer raises no peak; the join is at time `at`."""
    movable = sorted(movable, key=lambda part: part.start)
    # Without its first part, the buffer is allocated later.
    for index in range(len(movable)):
        parts, start = movable[index:], movable[index].start
        changed = _changed(join, parts, roots, live[start : at + 1], at)
        if max(changed) <= max(live[start : at + 1]):
            live[start : at + 1] = changed
            return parts
    return []


def _changed(
    join: Join, parts: Sequence[BufferPart], roots: Roots, live: list[int], at: int
) -> list[int]:
    """The live bytes from the first part to the join, with these parts in the buffer."""
    nbytes = join.node.meta["val"].untyped_storage().nbytes()
    # The join itself has its result in both cases.
    changed = [*(size + nbytes for size in live[:-1]), live[-1]]
    moved = {part.node for part in parts}
    kept = roots[join.node].life.dies if join.node in roots else at
    on_one: dict[fx.Node, list[fx.Node]] = {}
    for node, _ in join.parts:
        if node in roots:
            on_one.setdefault(roots[node].node, []).append(node)
    for part in parts:
        # Its storage stays live for a part that is copied, or for a use after that of the join.
        if part.life.dies > max(at, kept) or not moved.issuperset(on_one[part.root]):
            continue
        for time in range(part.start - parts[0].start, len(changed)):
            changed[time] -= part.life.nbytes if time <= part.life.dies - parts[0].start else 0
    return changed


# --- the graph ------------------------------------------------------------------------------------


def _store(join: Join, parts: Sequence[BufferPart], emit: Emitter) -> tuple[fx.Node, fx.Node]:
    """Replace a join by stores into a new buffer; returns the buffer before and after them."""
    graph, node = emit.graph, join.node
    with graph.inserting_before(parts[0].root):
        buffer = _buffer(join, emit)
    buffer._rename(buffer_name(node))
    return buffer, _stored_into(buffer, join, emit)


def _stored_early(own: fx.Node, join: Join, emit: Emitter, liveness: Liveness) -> fx.Node:
    """Replace a join by stores into the storage of its parts, each as soon as its part is made.

    A later store would read what the next part is computed from, to keep it.
    """
    joined = own
    for part, store in sorted(join.parts, key=lambda each: each[0]):
        last = max(joined, part)
        with emit.graph.inserting_after(last):
            joined = store(emit, joined, part)
        liveness.position[joined] = liveness.position[last]
    join.node.replace_all_uses_with(joined)
    emit.graph.erase_node(join.node)
    return joined


def _stored_into(buffer: fx.Node, join: Join, emit: Emitter) -> fx.Node:
    """Replace a join by stores into a buffer; returns the buffer after them."""
    joined = buffer
    with emit.graph.inserting_before(join.node):
        for part, store in join.parts:
            joined = store(emit, joined, part)
    join.node.replace_all_uses_with(joined)
    emit.graph.erase_node(join.node)
    return joined


def _buffer(join: Join, emit: Emitter) -> fx.Node:
    value = join.node.meta["val"]
    like = {"dtype": value.dtype, "device": value.device}
    if join.base is not None:
        return _copy_of_base(join.base, value, emit)
    if join.fill is not None:
        return emit.call(aten.full.default, list(value.shape), join.fill, **like)
    layout = list(value.shape), list(value.stride())
    return emit.call(aten.empty_strided.default, *layout, **like)


def _copy_of_base(base: fx.Node, value: torch.Tensor, emit: Emitter) -> fx.Node:
    """A copy of the base of a scatter, in a storage like that of the scatter's result."""
    count = value.untyped_storage().nbytes() // value.itemsize
    if value.numel() == count:
        return emit.call(aten.clone.default, base)
    whole = emit.call(aten.as_strided.default, base, [count], [1], 0)
    layout = list(value.shape), list(value.stride()), value.storage_offset()
    return emit.call(aten.as_strided.default, emit.call(aten.clone.default, whole), *layout)


def buffer_name(join: fx.Node) -> str:
    """The name of the buffer of a join."""
    return f"{join.name}_buffer"
