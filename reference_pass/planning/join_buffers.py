"""Concatenations without copies: `cat`, `stack`, pads and scatters as stores into a new buffer.

    p = a * 2                                   buffer = empty
    q = b + 1                                   p = mul.out(a, 2, out=buffer[:n])
    c = cat([p, q])                             q = add.out(b, 1, out=buffer[n:])

Here, the graph stays functional: `c` becomes a chain of scatters into `empty`. The buffer is made
before the first part, and the scatters are where `c` was. Reinplacing does the rest: it computes
each part where its scatter stores it (`offers`), and then the scatter is redundant.

The buffer is live from the first part on. That costs memory if the parts are made early, and are
small beside other live values. So for each part it is decided whether it is computed in the buffer.

A part is computed in the buffer by the call that allocates its storage, its *root*. That is the
call of the part itself, or an earlier one, if the part is a view of the root or is written over it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.operator_forms import SCATTERS, aten, bind
from aliasproof.reference_pass.calls.regions import Region, is_contiguous, is_dense
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.planning.offers import can_be_elsewhere
from aliasproof.reference_pass.planning.timeline import Lifetime, Timeline
from aliasproof.reference_pass.semantics import Semantics

# (emitter, the value of a buffer, a part) -> the value of the buffer with the part stored
Store: TypeAlias = Callable[[Emitter, fx.Node, fx.Node], fx.Node]


@dataclass(frozen=True, slots=True)
class Join:
    """A call that copies parts into a new tensor, one store per part.

    The memory around the parts contains a number, `fill`, or a copy of `base`.
    """

    node: fx.Node
    parts: tuple[tuple[fx.Node, Store], ...]
    fill: float | None = None
    base: fx.Node | None = None


def join_of(node: fx.Node) -> Join | None:
    """A call as a join; None if it is not one, or if it converts the parts that it copies."""
    made = JOINS[node.target](node) if node.target in JOINS else None
    if made is None:
        return None
    result = node.meta["val"]
    if made.fill is not None and not is_contiguous(result):
        return None  # so is the buffer
    for part, _ in made.parts:
        value = part.meta["val"]
        sizes = (*value.shape, *value.stride(), *result.shape, *result.stride())
        if not all(isinstance(size, int) for size in sizes):
            return None
        if (value.dtype, value.device) != (result.dtype, result.device):
            return None
    return made


def _of_cat(node: fx.Node) -> Join | None:
    given = bind(node.target, node.args, node.kwargs)  # type: ignore[arg-type]
    tensors, rank = given["tensors"], node.meta["val"].dim()
    # An empty tensor of one dimension may be joined with any other tensors.
    if not all(isinstance(part, fx.Node) and part.meta["val"].dim() == rank for part in tensors):
        return None
    dim = given.get("dim", 0) % rank
    parts, start = [], 0
    for part in tensors:
        end = start + part.meta["val"].shape[dim]
        parts.append((part, _by(aten.slice_scatter.default, dim, start, end)))
        start = end
    return Join(node, tuple(parts))


def _of_stack(node: fx.Node) -> Join | None:
    given = bind(node.target, node.args, node.kwargs)  # type: ignore[arg-type]
    dim = given.get("dim", 0) % node.meta["val"].dim()
    stores = enumerate(given["tensors"])
    return Join(
        node, tuple((part, _by(aten.select_scatter.default, dim, index)) for index, part in stores)
    )


def _of_pad(node: fx.Node) -> Join | None:
    given = bind(node.target, node.args, node.kwargs)  # type: ignore[arg-type]
    part, pads = given["self"], given["pad"]
    if not all(isinstance(pad, int) and pad >= 0 for pad in pads):
        return None  # a negative pad cuts
    # The pads begin with the last dimension.
    strides = node.meta["val"].stride()
    starts = zip(reversed(strides), pads[::2], strict=False)
    offset = sum(stride * before for stride, before in starts)
    layout = list(part.meta["val"].shape), list(strides), offset
    stored = part, _by(aten.as_strided_scatter.default, *layout)
    return Join(node, (stored,), given.get("value", 0))


def _of_scatter(node: fx.Node) -> Join | None:
    assert isinstance(node.target, OpOverload)
    base, part, *args = node.args
    if not isinstance(base, fx.Node) or not isinstance(part, fx.Node):
        return None
    value, result = base.meta["val"], node.meta["val"]
    own = result.numel() * result.itemsize
    # A scatter copies the whole storage of its base, which `as_strided` of the result may show.
    cloned = is_dense(Region.of(value)) and (0, own), value.stride()
    whole = (value.storage_offset(), value.untyped_storage().nbytes()), value.stride()
    layout = (result.storage_offset(), result.untyped_storage().nbytes()), result.stride()
    if layout not in (cloned, whole) or value.is_conj() or value.is_neg():
        return None
    return Join(node, ((part, _by(node.target, *args, **node.kwargs)),), base=base)


JOINS: dict[Any, Callable[[fx.Node], Join | None]] = {
    aten.cat.default: _of_cat,
    aten.stack.default: _of_stack,
    aten.constant_pad_nd.default: _of_pad,
    # If nothing else needs the base, the scatter stores into it.
    **dict.fromkeys(SCATTERS, _of_scatter),
}


def _by(scatter: OpOverload, *args: Any, **kwargs: Any) -> Store:
    """A store by a scatter with these arguments."""
    return lambda emit, buffer, part: emit.call(scatter, buffer, part, *args, **kwargs)


# --- the parts in the buffer ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BufferPart:
    """A part that can be computed in a buffer, from time `start` on, when its root runs.

    `life` is that of the storage that it needs otherwise.
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
    """Turn joins of a functional graph into stores, where that raises no peak.

    `timeline` is that of the same graph, reinplaced without buffers. Returns, by the name of each
    root that can be computed in a buffer, the name of its part. Roots named in `without` cannot.
    Nodes named in `marked` do not change.
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
        if join.node in roots:  # now the buffer allocates, and may be part of a larger one
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

    If each part is at its position there already, as in `cat([p.exp(), q.sin()])` of the halves p
    and q of one tensor, the stores are of a tensor into itself, and all of them are erased.
    """
    root = roots.get(join.parts[0][0])
    if root is None or join.base is not None or join.fill is not None:
        return None
    if any(part not in roots or roots[part].node is not root.node for part, _ in join.parts):
        return None
    value, result = root.node.meta["val"], join.node.meta["val"]
    if not isinstance(value, torch.Tensor):  # of a call with several results, such as `sort`
        return None
    one, other = ((it.dtype, it.device, it.shape, it.stride()) for it in (value, result))
    is_whole = value.untyped_storage().nbytes() == result.untyped_storage().nbytes()
    return root if one == other and is_whole and not liveness.returned_in(value) else None


def _parts(join: Join, roots: Roots, liveness: Liveness) -> Iterator[BufferPart]:
    """The parts that can be computed elsewhere, and that are not returned."""
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
    """False if the base is made after `start`, or if the scatter can store into it.

    In the latter case the scatter is in place, and allocates nothing.
    """
    if join.base is None:
        return True
    allocates = join.node in roots and roots[join.node].node is join.node
    return allocates and liveness.position[join.base] < start


# --- the bytes that a buffer costs ----------------------------------------------------------------


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
    # At the time of the join, the result is live in both cases.
    changed = [*(size + nbytes for size in live[:-1]), live[-1]]
    moved = {part.node for part in parts}
    kept = roots[join.node].life.dies if join.node in roots else at
    on_one: dict[fx.Node, list[fx.Node]] = {}
    for node, _ in join.parts:
        if node in roots:
            on_one.setdefault(roots[node].node, []).append(node)
    for part in parts:
        # The storage stays live if another part on it is copied, or if it is used after the join.
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
        buffer = joined = _buffer(join, emit)
    buffer._rename(buffer_name(node))
    with graph.inserting_before(node):
        for part, store in join.parts:
            joined = store(emit, joined, part)
    node.replace_all_uses_with(joined)
    graph.erase_node(node)
    return buffer, joined


def _stored_early(own: fx.Node, join: Join, emit: Emitter, liveness: Liveness) -> fx.Node:
    """Replace a join by stores into the storage of its parts, each as soon as its part is made.

    A later store would read the other bytes of the storage, as those of its base. Then the next
    part could not be computed over them.
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


def _buffer(join: Join, emit: Emitter) -> fx.Node:
    value = join.node.meta["val"]
    like = {"dtype": value.dtype, "device": value.device}
    if join.base is not None:  # a copy of it, in a storage like that of the scatter's result
        count = value.untyped_storage().nbytes() // value.itemsize
        if value.numel() == count:
            return emit.call(aten.clone.default, join.base)
        whole = emit.call(aten.as_strided.default, join.base, [count], [1], 0)
        own = list(value.shape), list(value.stride()), value.storage_offset()
        return emit.call(aten.as_strided.default, emit.call(aten.clone.default, whole), *own)
    if join.fill is not None:
        return emit.call(aten.full.default, list(value.shape), join.fill, **like)
    layout = list(value.shape), list(value.stride())
    return emit.call(aten.empty_strided.default, *layout, **like)


def buffer_name(join: fx.Node) -> str:
    """The name of the buffer of a join."""
    return f"{join.name}_buffer"
