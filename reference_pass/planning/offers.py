"""Where a result could be: further candidates of reinplacing (`candidates`).

- any operand, and for a call on copies (`on_copies`), which is not a functional form of an op, what
  it writes;
- the input that the epilogue copies a result to. The result is live until then, so it is best
  computed in that input: by an in-place op, by an `out=`, or by a `copy_` that comes earlier.

Planning adds other memory, mostly through *views* that are made for the result (`Offers`):

- the part of a base that a later scatter stores the result to. An `out=` kernel writes there, and
  the scatter is then redundant. So the parts of a concatenation are computed in the concatenation
  itself (`join_buffers`);
- memory whose contents nothing reads any more. It may be larger than the result, and may have had
  another dtype (`reuse` says which memory to take);
- for a call that copies a view of its operand, that view.

These are candidates like all others: the conditions of reinplacing decide whether they are safe.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.metadata import set_value
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import (
    SCATTERS,
    aten,
    bind,
    facts,
    is_pointwise,
    out_form,
    stores_through,
    unbind,
    writes,
)
from aliasproof.reference_pass.calls.regions import Size, same_strides
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.calls.view_forms import copied_view
from aliasproof.reference_pass.candidates import Candidate, How, Slot, candidates, slots_of
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.planning.timeline import size_or_hint


def all_candidates(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The possible rewrites of a node, the best first: into its operands, or into an input."""
    op, own = node.target, list(candidates(node, liveness))
    if op is operator.getitem:
        yield from _into_input(node, liveness)
    elif op is on_copies:
        yield from _called_on_copies(node, liveness)
    if not isinstance(op, OpOverload) or writes(op) or node in liveness.views or op in SCATTERS:
        yield from own
        return
    into_input = list(_into_input(node, liveness))
    inputs = {storage_of(candidate.slots[0].written) for candidate in into_input}
    same: list[Candidate] = []
    others: list[Candidate] = []
    # In order of preference. A rewrite into the first operand gives the plainest graph.
    for candidate in (*own, *_out(node, op, liveness)):
        is_same = any(storage_of(slot.written) in inputs for slot in candidate.slots)
        (same if is_same or candidate.how is How.REDUNDANT else others).append(candidate)
    yield from same
    if liveness.position[node] + 1 < liveness.epilogue:
        yield from into_input
        yield from others
    else:  # the epilogue comes next, so a result in another operand is not live for longer
        yield from others
        yield from into_input


def _called_on_copies(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The mutating operator itself, in place of a call of it on copies."""
    op, *args = node.args
    assert isinstance(op, OpOverload)
    if "layouts" in node.kwargs:
        return  # its operands do not have the layouts that it needs, or overlap
    given = bind(op, tuple(args), node.kwargs)
    # Here the mutating op has the same arguments as the node, not those of a functional form.
    slots = slots_of(node, [given.get(name) for name in facts(op).writes], op)
    if slots:
        yield Candidate(node, How.IN_PLACE, op, tuple(args), node.kwargs, slots, liveness)


def _into_input(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The result, computed in the input that the epilogue copies it to."""
    op = node.target
    form = kernel_into(op) if isinstance(op, OpOverload) and is_pointwise(op) else None
    for copy in node.users:
        if copy.target is not aten.copy_.default or copy.args[1] is not node:
            continue
        destination = copy.args[0]
        assert isinstance(destination, fx.Node)
        # The destination is a view of the input that is made only in the epilogue.
        if liveness.position[destination] > liveness.position[node]:
            continue
        if form is not None:
            yield _by_out(node, form, destination, liveness)
        copied, slots = (destination, node), (Slot.all_of(node, destination),)
        yield Candidate(node, How.COPIED, aten.copy_.default, copied, {}, slots, liveness)


def _out(node: fx.Node, op: OpOverload, liveness: Liveness) -> Iterator[Candidate]:
    """The `out=` form, into any operand: a pointwise op reads each element before it writes it."""
    form = out_kernel(node) if is_pointwise(op) else None
    if form is None:
        return
    given = bind(op, node.args, node.kwargs).values()
    operands = [argument for argument in given if isinstance(argument, fx.Node)]
    # The in-place form has tried the first operand; a repeated operand is tried once.
    is_first_tried = liveness.semantics.in_place_form(node) is not None
    for operand in dict.fromkeys(operands[1:] if is_first_tried else operands):
        if isinstance(operand.meta["val"], torch.Tensor):
            yield _by_out(node, form, operand, liveness)


def _by_out(node: fx.Node, form: OpOverload, destination: fx.Node, liveness: Liveness) -> Candidate:
    """The `out=` form of a call, into this destination."""
    assert isinstance(node.target, OpOverload)
    given = bind(node.target, node.args, node.kwargs) | {facts(form).outs[0]: destination}
    slots = (Slot.all_of(node, destination),)
    return Candidate(node, How.OUT, form, *unbind(form, given), slots, liveness)


@functools.cache
def kernel_into(op: OpOverload) -> OpOverload | None:
    """The operator that writes what `op` computes to an `out=`, and to nothing else.

    A generated `out=` form computes a new tensor and copies it, which saves nothing. Random numbers
    are drawn in memory order. A loss first resizes its `out=` to the losses that it reduces
    (aten/src/ATen/native/Loss.cpp), so it would write past a part of a storage.
    """
    if facts(op).random or "reduction" in facts(op).names:
        return None
    form = out_form(op)
    return None if form is None or torch.Tag.generated in form.tags else form


# --- memory beyond the operands -------------------------------------------------------------------


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
        most = math.inf if self.keeps else sum(map(_storage_size, tensors_in(node.meta["val"])))
        yield from (candidate for kept, candidate in plain if 0 < kept <= most)
        yield from _over_another_dtype(node, liveness)
        if node in self.reuse:
            yield from _into_storage(node, *self.reuse[node], liveness)


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
            kept += _storage_size(slot.written)
    return kept


def _storage_size(tensor: torch.Tensor) -> int:
    return size_or_hint(tensor.untyped_storage().nbytes())


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
    if node.target is aten.clone.default and is_plain_copy(node):
        # If the result, or a view of it, is stored into, it needs memory of its own.
        values = [node, *(user for user in node.users if user in liveness.views)]
        uses = ((user, value) for value in values for user in value.users)
        if not any(user.target in _STORES and user.args[0] is value for user, value in uses):
            slots = (Slot.all_of(node, node.all_input_nodes[0]),)
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
    slots = (Slot.all_of(node, view),)
    assert isinstance(op, OpOverload)
    yield Candidate(node, How.VIEW, op, node.args, node.kwargs, slots, liveness)


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
    slots, form = (Slot.all_of(node, destination),), out_kernel(node)
    if is_plain_copy(node):
        copied = (destination, node.args[0])
        return Candidate(node, How.OUT, aten.copy_.default, copied, {}, slots, liveness)
    if form is not None:
        return _by_out(node, form, destination, liveness)
    assert isinstance(node.target, OpOverload)  # it is uninitialised memory
    return Candidate(node, How.TAKEN, node.target, node.args, node.kwargs, slots, liveness)


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
