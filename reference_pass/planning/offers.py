"""Where a result could be: what `candidates` offers, and memory that is no operand of the call.

`candidates` offers the operands of a call, and the inputs that the epilogue copies its result to.
Here are further places, most of them *views* that are made for the result:

- the part of a base that a later scatter stores the result to. An `out=` kernel writes there, and
  the scatter is then redundant. So the parts of a concatenation are computed where the
  concatenation is (`joins`);
- memory whose contents nobody reads any more. It may be larger than the result, and may have held
  another dtype (`reuse` says which one to take);
- of a call that copies a view of its operand, that view.

These are candidates as all others: the conditions of reinplacing say whether they are safe.
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
    aten,
    bind,
    copied_view,
    facts,
    is_pointwise,
    out_form,
    unbind,
)
from aliasproof.reference_pass.candidates import Candidate, How, Slot, candidates
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.planning.timeline import hinted
from aliasproof.reference_pass.regions import Size, same_strides
from aliasproof.reference_pass.views import SCATTERS, stores_through

# One number per result: the index of an operand that is a tensor, or NEW for a new storage.
Mark: TypeAlias = tuple[int, ...]
NEW = -1


def out_kernel(node: fx.Node) -> OpOverload | None:
    """The operator that writes what a call computes to an `out=`; None if it would save nothing.

    A generated `out=` form computes a new tensor and copies it. Random numbers are drawn in the
    order of memory, so such calls stay as they are.
    """
    op = node.target
    if not isinstance(op, OpOverload) or not isinstance(node.meta["val"], torch.Tensor):
        return None
    form = None if facts(op).random else out_form(op)
    return None if form is None or torch.Tag.generated in form.tags else form


def is_plain_copy(node: fx.Node) -> bool:
    """True for a clone, or a cast, that `copy_` can make in any memory."""
    if node.target not in (aten.clone.default, aten._to_copy.default):
        return False
    source, value = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    has_lazy_bits = any(tensor.is_conj() or tensor.is_neg() for tensor in (source, value))
    return source.device == value.device and not has_lazy_bits


def can_be_elsewhere(node: fx.Node) -> bool:
    """True if the result of a call can be in memory that is given to it."""
    is_empty = node.target is aten.empty_strided.default
    return is_empty or is_plain_copy(node) or out_kernel(node) is not None


@dataclass(frozen=True, slots=True)
class Offers:
    """The candidates of planning.

    `stored` has the results that are, or become in place, a part that a scatter stores: each with
    that part. `reuse` has the results that take over memory: each with a value on the storage, and
    an offset in bytes. `marks` are obeyed: such a call has no other candidates.
    """

    stored: Mapping[fx.Node, fx.Node] = field(default_factory=dict)
    reuse: Mapping[fx.Node, tuple[fx.Node, int]] = field(default_factory=dict)
    marks: Mapping[fx.Node, Mark] = field(default_factory=dict)

    def __call__(self, node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
        """All candidates of a node, those first that keep the fewest bytes live."""
        plain = by_bytes_kept(node, liveness)
        if node in self.marks:
            mark = self.marks[node]
            yield from (candidate for _, candidate in plain if operands_taken(candidate) == mark)
            return
        yield from _as_view(node, liveness)
        yield from _into_inputs(node, liveness)
        yield from (candidate for kept, candidate in plain if not kept)
        yield from _into_part(node, self.stored.get(node, node), liveness)
        yield from (candidate for kept, candidate in plain if kept)
        if node in self.reuse:
            yield from _into_storage(node, *self.reuse[node], liveness)


def by_bytes_kept(node: fx.Node, liveness: Liveness) -> list[tuple[int, Candidate]]:
    """The candidates of a node, each with the bytes that it keeps live; the fewest come first."""
    pairs = [(_kept_live(candidate), candidate) for candidate in candidates(node, liveness)]
    # `sorted` is stable: the order of `candidates` decides between equal ones.
    return sorted(pairs, key=operator.itemgetter(0))


def _kept_live(candidate: Candidate) -> int:
    """The bytes of storages that would be freed after the call, if the result were elsewhere."""
    if candidate.how is How.REDUNDANT:
        return 0  # nothing is computed
    return sum(_freed(slot, candidate) for slot in candidate.slots)


def _freed(slot: Slot, candidate: Candidate) -> int:
    memory = candidate.liveness.memory(slot.written)
    read_later = any(read.at > candidate.at for reads in memory.values.values() for read in reads)
    if memory.is_input or read_later:
        return 0
    return hinted(slot.written.untyped_storage().nbytes())


# --- as a mark says -------------------------------------------------------------------------------


def operands_taken(candidate: Candidate) -> Mark | None:
    """The mark that says what a candidate does; None if no mark can say it."""
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
    """The operands that are tensors, in order; repeated ones repeatedly."""
    nodes = nodes_in((node.args, node.kwargs))
    return [operand for operand in nodes if isinstance(operand.meta["val"], torch.Tensor)]


# --- a copy as a view -----------------------------------------------------------------------------


def _as_view(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The view that a view-copy op copies, or one of the views that it copies to a list."""
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
    yield Candidate(node, How.SHOWN, op, node.args, node.kwargs, slots, liveness)


# --- into an input --------------------------------------------------------------------------------


def _into_inputs(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The inputs that the epilogue copies the result of a call to, if `candidates` has them not."""
    if not can_be_elsewhere(node) or is_pointwise(node.target):  # type: ignore[arg-type]
        return
    for copy in node.users:
        if copy.target is aten.copy_.default and copy.args[1] is node:
            destination = copy.args[0]
            assert isinstance(destination, fx.Node)
            if liveness.position[destination] < liveness.position[node]:
                yield _into(node, destination, liveness)


# --- into a part of a base ------------------------------------------------------------------------


def _into_part(node: fx.Node, part: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """Where a later scatter stores `part`, which is on the storage of the result."""
    if not can_be_elsewhere(node):
        return
    for scatter in part.users:
        if scatter.target not in SCATTERS or scatter.args[1] is not part:
            continue
        op, (base, *args) = stores_through(scatter)
        # The scatters before it store into the same buffer.
        while base.target in SCATTERS and liveness.position[base] >= liveness.position[node]:
            base = base.args[0]
        # The base, and symbols among the arguments, are there before the result is.
        if any(
            liveness.position[given] >= liveness.position[node] for given in nodes_in((base, args))
        ):
            continue
        stored = _view_before(node, op, (base, *args), liveness)
        destination = _as_result(node, part, stored, liveness)
        if destination is not None:
            yield _into(node, destination, liveness)


def _as_result(node: fx.Node, part: fx.Node, stored: fx.Node, liveness: Liveness) -> fx.Node | None:
    """A view of the memory that `part` is stored to, with the layout of the result; or None.

    The part shows all of the result: it is written over it, or is a view of it.
    """
    own, shown, to = node.meta["val"], part.meta["val"], stored.meta["val"]
    if own.shape == shown.shape and own.stride() == shown.stride():
        return stored
    # A block with the same strides. Then each view of the result has its place there, too.
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
    """A new view, made just before a node. If nothing comes to use it, it is erased as dead."""
    with node.graph.inserting_before(node):
        name = getattr(op, "overloadpacket", op).__name__
        view = node.graph.create_node("call_function", op, args, kwargs, name=name)
    set_value(view, liveness.semantics)
    liveness.views.add(view)
    liveness.position[view] = liveness.position[node]
    return view


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
    """True if a storage has room for a value, also as whole elements of both dtypes."""
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
        # In one dimension, so that it can be seen as another dtype.
        elements = -(-value.untyped_storage().nbytes() // tensor.itemsize)
        line = [elements], [1], offset // tensor.itemsize
        held = _view_before(node, aten.as_strided.default, (held, *line), liveness)
        held = _view_before(node, aten.view.dtype, (held, value.dtype), liveness)
    return _view_before(node, aten.as_strided.default, (held, *layout), liveness)
