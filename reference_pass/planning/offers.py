"""Where a result could be: the candidates of `destinations`, and memory beyond the operands.

`destinations` offers the operands of a call, and the inputs that the epilogue copies its result to.
This file adds other memory, mostly through *views* that are made for the result:

- the part of a base that a later scatter stores the result to. An `out=` kernel writes there, and
  the scatter is then redundant. So the parts of a concatenation are computed in the concatenation
  itself (`join_buffers`);
- memory whose contents nothing reads any more. It may be larger than the result, and may have had
  another dtype (`reuse` says which memory to take);
- for a call that copies a view of its operand, that view.

These are candidates like all others: the conditions of reinplacing decide whether they are safe.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.metadata import set_value
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import (
    SCATTERS,
    aten,
    bind,
    facts,
    stores_through,
    unbind,
)
from aliasproof.reference_pass.calls.regions import Size, same_strides
from aliasproof.reference_pass.calls.view_forms import copied_view
from aliasproof.reference_pass.candidates import Candidate, How, Slot
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.planning.destinations import all_candidates, kernel_into
from aliasproof.reference_pass.planning.timeline import size_or_hint

# One number per result: the index of an operand that is a tensor, or NEW for a new storage.
Mark: TypeAlias = tuple[int, ...]
NEW = -1


def out_kernel(node: fx.Node) -> OpOverload | None:
    """The operator that writes what a call computes to an `out=`; None if there is none."""
    op = node.target
    if not isinstance(op, OpOverload) or not isinstance(node.meta["val"], torch.Tensor):
        return None
    return kernel_into(op)


def is_plain_copy(node: fx.Node) -> bool:
    """True for a clone, or a cast, that `copy_` can make in any memory."""
    if node.target not in (aten.clone.default, aten._to_copy.default):
        return False
    source, value = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    has_lazy_bits = any(tensor.is_conj() or tensor.is_neg() for tensor in (source, value))
    return source.device == value.device and not has_lazy_bits


def can_be_elsewhere(node: fx.Node) -> bool:
    """True if the result of a call can be computed in given memory."""
    is_empty = node.target is aten.empty_strided.default
    return is_empty or is_plain_copy(node) or out_kernel(node) is not None


@dataclass(frozen=True, slots=True)
class Offers:
    """The candidates of planning.

    `stored` maps a result to the part that a scatter stores, if it is that part, or becomes it in
    place. `reuse` maps a result that takes over memory to a value on the storage, and an offset in
    bytes. `marks` are obeyed: a marked call has no other candidates. Without `keeps`, no result
    keeps more bytes alive than it needs.
    """

    stored: Mapping[fx.Node, fx.Node] = field(default_factory=dict)
    reuse: Mapping[fx.Node, tuple[fx.Node, int]] = field(default_factory=dict)
    marks: Mapping[fx.Node, Mark] = field(default_factory=dict)
    keeps: bool = True

    def __call__(self, node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
        """All candidates of a node; those that keep the fewest bytes live come first."""
        plain = by_bytes_kept(node, liveness)
        if node in self.marks:
            mark = self.marks[node]
            yield from (candidate for _, candidate in plain if operands_taken(candidate) == mark)
            return
        yield from _as_view(node, liveness)
        yield from _where_stored(node, node, (aten.copy_.default,), liveness)
        yield from (candidate for kept, candidate in plain if not kept)
        yield from _where_stored(node, self.stored.get(node, node), _STORES, liveness)
        yield from (candidate for kept, candidate in plain if kept and self._is_worth(kept, node))
        yield from _over_another_dtype(node, liveness)
        if node in self.reuse:
            yield from _into_storage(node, *self.reuse[node], liveness)

    def _is_worth(self, kept: int, node: fx.Node) -> bool:
        own = sum(
            size_or_hint(value.untyped_storage().nbytes()) for value in tensors_in(node.meta["val"])
        )
        return self.keeps or kept <= own


def by_bytes_kept(node: fx.Node, liveness: Liveness) -> list[tuple[int, Candidate]]:
    """The candidates of a node, each with the bytes that it keeps live; the fewest come first."""
    pairs = [(_kept_live(candidate), candidate) for candidate in all_candidates(node, liveness)]
    # `sorted` is stable: the order of `all_candidates` decides between equal ones.
    return sorted(pairs, key=operator.itemgetter(0))


def _kept_live(candidate: Candidate) -> int:
    """The bytes of storages that would be freed after the call, if the result were elsewhere."""
    kept = 0
    for slot in () if candidate.how is How.REDUNDANT else candidate.slots:  # or nothing is computed
        memory, at = candidate.liveness.memory(slot.written), candidate.at
        read_later = any(read.at > at for reads in memory.values.values() for read in reads)
        if not memory.is_input and not read_later:
            kept += size_or_hint(slot.written.untyped_storage().nbytes())
    return kept


# --- by a mark ------------------------------------------------------------------------------------


def operands_taken(candidate: Candidate) -> Mark | None:
    """The mark that describes a candidate; None if no mark can."""
    operands, results = operands_of(candidate.node), tensors_in(candidate.node.meta["val"])
    if candidate.how not in (How.IN_PLACE, How.OUT):
        return None
    into = [NEW] * len(results)
    for slot in candidate.slots:
        if slot.destination not in operands:
            return None
        at = next(i for i, result in enumerate(results) if result is slot.value)
        into[at] = operands.index(slot.destination)
    return tuple(into)


def operands_of(node: fx.Node) -> list[fx.Node]:
    """The operands that are tensors, in order, with repetitions."""
    nodes = nodes_in((node.args, node.kwargs))
    return [operand for operand in nodes if isinstance(operand.meta["val"], torch.Tensor)]


# --- a copy as a view -----------------------------------------------------------------------------


def _as_view(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The operand of a clone; or the view that a view-copy op copies, or one in a list of them."""
    if node.target is aten.clone.default and is_plain_copy(node) and not _is_base(node, liveness):
        (source,) = node.all_input_nodes
        slots = (Slot(node, node.meta["val"], source, source.meta["val"]),)
        yield Candidate(node, How.VIEW, node.target, node.args, node.kwargs, slots, liveness)
    is_picked = node.target is operator.getitem
    copied = node.args[0] if is_picked else node
    assert isinstance(copied, fx.Node)
    op = copied.target
    view_op = copied_view(op) if isinstance(op, OpOverload) else None
    if view_op is None or not isinstance(node.meta["val"], torch.Tensor):
        return
    view = _view_before(node, view_op, copied.args, liveness, copied.kwargs)
    if is_picked:
        view = _view_before(node, operator.getitem, (view, node.args[1]), liveness)
    slots = (Slot(node, node.meta["val"], view, view.meta["val"]),)
    assert isinstance(op, OpOverload)
    yield Candidate(node, How.VIEW, op, node.args, node.kwargs, slots, liveness)


def _is_base(node: fx.Node, liveness: Liveness) -> bool:
    """True if a result, or a view of it, is stored into: then it needs memory of its own."""
    values = [node, *(user for user in node.users if user in liveness.views)]
    return any(
        user.target in _STORES and user.args[0] is value for value in values for user in value.users
    )


# --- where it is stored later ---------------------------------------------------------------------


_STORES = (*SCATTERS, aten.copy.default)


def _where_stored(
    node: fx.Node, part: fx.Node, stores: tuple[Any, ...], liveness: Liveness
) -> Iterator[Candidate]:
    """The memory to which a later store stores `part`, which is on the storage of the result."""
    if not can_be_elsewhere(node):
        return
    for store in part.users:
        if store.target not in stores or store.args[1] is not part:
            continue
        destination = _stored_to(store, node, liveness)
        if destination is not None:
            destination = _as_result(node, part, destination, liveness)
        if destination is not None:
            yield _into(node, destination, liveness)


def _stored_to(store: fx.Node, node: fx.Node, liveness: Liveness) -> fx.Node | None:
    """The memory that a call stores to, made before a node; None if that is not possible."""
    op: OpOverload | None = None
    base, args = store.args[0], list[Any]()
    if store.target in SCATTERS:
        op, (base, *args) = stores_through(store)
    assert isinstance(base, fx.Node)
    # Earlier stores of the chain are into the same buffer.
    while base.target in _STORES and liveness.position[base] >= liveness.position[node]:
        base = base.args[0]
        assert isinstance(base, fx.Node)
    # The base, and symbols among the arguments, must exist before the result.
    made = _made_before(base, node, liveness)
    if made is None or any(
        liveness.position[given] >= liveness.position[node] for given in nodes_in(args)
    ):
        return None
    return made if op is None else _view_before(node, op, (made, *args), liveness)


def _made_before(value: fx.Node, node: fx.Node, liveness: Liveness) -> fx.Node | None:
    """A value, or the same view of a value that exists before a node; None if it is made later."""
    # A node that was inserted just before this node has the same position.
    if value is not node and liveness.position[value] <= liveness.position[node]:
        return value
    if value.target is aten.empty_strided.default:
        node.prepend(value)
        liveness.position[value] = liveness.position[node]
        return value
    if value not in liveness.views or len(nodes_in((value.args, value.kwargs))) > 1:
        return None
    operand, *args = value.args
    made = _made_before(operand, node, liveness) if isinstance(operand, fx.Node) else None
    if made is None:
        return None
    return _view_before(node, value.target, (made, *args), liveness, value.kwargs)


def _as_result(node: fx.Node, part: fx.Node, stored: fx.Node, liveness: Liveness) -> fx.Node | None:
    """A view of the memory that `part` is stored to, with the layout of the result; or None.

    The part shows all of the result: it is written over it, or is a view of it.
    """
    own, shown, to = node.meta["val"], part.meta["val"], stored.meta["val"]
    if own.shape == shown.shape and own.stride() == shown.stride():
        return stored
    # A block with the same strides, so each view of the result has the same bytes in it.
    if shown.numel() != own.numel() or not same_strides(shown.shape, shown.stride(), to.stride()):
        return None
    layout = list(own.shape), list(own.stride()), to.storage_offset()
    return _view_before(node, aten.as_strided.default, (stored, *layout), liveness)


def _into(node: fx.Node, destination: fx.Node, liveness: Liveness) -> Candidate:
    slots = (Slot(node, node.meta["val"], destination, destination.meta["val"]),)
    op, form = node.target, out_kernel(node)
    assert isinstance(op, OpOverload)
    if is_plain_copy(node):
        copied = (destination, node.args[0])
        return Candidate(node, How.OUT, aten.copy_.default, copied, {}, slots, liveness)
    if form is None:  # it is uninitialised memory
        return Candidate(node, How.TAKEN, op, node.args, node.kwargs, slots, liveness)
    given = bind(op, node.args, node.kwargs) | {facts(form).outs[0]: destination}
    return Candidate(node, How.OUT, form, *unbind(form, given), slots, liveness)


def _view_before(
    node: fx.Node,
    op: Any,
    args: tuple[Any, ...],
    liveness: Liveness,
    kwargs: dict[str, Any] | None = None,
) -> fx.Node:
    """A new view, made just before a node. If nothing uses it, it is erased as dead."""
    with node.graph.inserting_before(node):
        name = getattr(op, "overloadpacket", op).__name__
        view = node.graph.create_node("call_function", op, args, kwargs, name=name)
    set_value(view, liveness.semantics)
    liveness.views.add(view)
    liveness.position[view] = liveness.position[node]
    return view


# --- over an operand of another dtype -------------------------------------------------------------


def _over_another_dtype(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The operands whose elements have as many bytes as those of the result."""
    value = node.meta["val"]
    for operand in node.all_input_nodes if can_be_elsewhere(node) else ():
        tensor = operand.meta["val"]
        if not isinstance(tensor, torch.Tensor) or tensor.dtype == value.dtype:
            continue
        if tensor.itemsize == value.itemsize and tensor.shape == value.shape:
            seen = _view_before(node, aten.view.dtype, (operand, value.dtype), liveness)
            yield _into(node, seen, liveness)


# --- into a storage that is free ------------------------------------------------------------------


def _into_storage(
    node: fx.Node, held: fx.Node, offset: int, liveness: Liveness
) -> Iterator[Candidate]:
    """The storage of a value that was made before, from an offset in bytes on."""
    value, other = node.meta["val"], held.meta["val"]
    if not all(isinstance(size, int) for size in (*value.shape, *value.stride())):
        return
    if other.device == value.device and _has_room(other, value, offset):
        yield _into(node, _laid_over(held, offset, node, liveness), liveness)


def _has_room(held: torch.Tensor, value: torch.Tensor, offset: int) -> bool:
    """True if a storage has room for a value, also in whole elements of both dtypes."""
    room: Size = held.untyped_storage().nbytes() // held.itemsize * held.itemsize
    return isinstance(room, int) and bool(offset + value.untyped_storage().nbytes() <= room)


def _laid_over(held: fx.Node, offset: int, node: fx.Node, liveness: Liveness) -> fx.Node:
    """A view of the storage of `held`, with the layout and dtype of the value of a node."""
    tensor, value = held.meta["val"], node.meta["val"]
    layout = list(value.shape), list(value.stride()), offset // value.itemsize
    own = list(tensor.shape), list(tensor.stride()), tensor.storage_offset()
    same_dtype = tensor.dtype == value.dtype
    if same_dtype and own == layout:
        return held
    if not same_dtype:
        # In one dimension, so that it can be viewed as another dtype.
        elements = -(-value.untyped_storage().nbytes() // tensor.itemsize)
        line = [elements], [1], offset // tensor.itemsize
        held = _view_before(node, aten.as_strided.default, (held, *line), liveness)
        held = _view_before(node, aten.view.dtype, (held, value.dtype), liveness)
    return _view_before(node, aten.as_strided.default, (held, *layout), liveness)
