"""What the calls of a functional graph allow to share bytes: the `Problem` of a graph.

The rules permit more rather than less, so that the smallest peak is a bound for every planner that
keeps the calls and their order, and adds no copies except to make those of the epilogue earlier:

- A pointwise call may write over an operand of the same sizes and item size, a call with an
  in-place form over one of the same sizes. A call without a schema may write over any such, unless
  it names the `layouts` of the copies that it works on.
- A part of a concatenation, and what a scatter stores, may be computed where it is copied to.
- A copy may be the bytes that it is a copy of. A copy of an input that nobody writes before is
  no value at all, unless it is returned.
- A pointwise call may give the dtype that its only user casts it to.
- A kernel with an `out=` can compute its result anywhere, and so can constants and copies.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.oracles.forms import SCATTERS, functional_form, view_of_copy
from aliasproof.oracles.location import Location
from aliasproof.oracles.node_call import NodeCall
from aliasproof.oracles.proofs.graph_memory import NEVER, GraphMemory, StorageUse
from aliasproof.oracles.proofs.memory_problem import Pair, Problem, Sharing, Space, Value
from aliasproof.programs.eager_call import tensors_in
from aliasproof.programs.regions import overlaps_itself
from aliasproof.programs.schemas import Kind, facts

aten = torch.ops.aten

JOINS = {aten.cat.default, aten.stack.default, aten.constant_pad_nd.default}
COPIES = {aten.clone.default, aten.lift_fresh_copy.default, aten.copy.default}


def problem_of(graph: fx.Graph) -> Problem:
    """The problem of planning a functional graph with true metadata."""
    rules = _Rules(GraphMemory(graph))
    pairs = dict.fromkeys(pair for node in rules.memory.calls for pair in rules.pairs(node))
    return Problem(tuple(rules.values), tuple(rules.spaces), tuple(pairs))


@dataclass(slots=True)
class _Rules:
    """The values and spaces of a graph, by the storages that they are."""

    memory: GraphMemory
    values: list[Value] = field(default_factory=list)
    spaces: list[Space] = field(default_factory=list)
    value_index: dict[int, int] = field(default_factory=dict)
    space_index: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for storage, memory in self.memory.memories.items():
            if memory.source is not None and memory.nbytes and not self._is_input_copy(memory):
                self.value_index[storage] = len(self.values)
                self.values.append(_value(memory))
        for storage, memory in self.memory.memories.items():
            if memory.source is None and (memory.written != NEVER).any():
                self.space_index[storage] = len(self.spaces)
                self.spaces.append(self._space(storage, memory))

    def _space(self, storage: int, memory: StorageUse) -> Space:
        free = memory.written != NEVER
        times = np.stack([memory.last_read[free], memory.written[free]])
        kinds, counts = np.unique(times, axis=1, return_counts=True)
        copied = tuple(
            (self.value_index[source], at)
            for source, destination, at in self.memory.copied
            if destination == storage and source in self.value_index
        )
        rows = zip(*kinds.tolist(), counts.tolist(), strict=True)
        return Space(f"input {len(self.spaces)}", tuple(rows), copied)

    def _is_input_copy(self, memory: StorageUse) -> bool:
        """True for a copy of an input that the input can stand in for."""
        assert memory.source is not None
        source = self._copied(memory.source)
        if source is None or memory.returned:
            return False
        of = self.memory.memories[source.storage]
        writes = of.written[of.written != NEVER]
        return of.source is None and bool((writes >= memory.dies).all())

    # --- pairs ------------------------------------------------------------------------------------

    def pairs(self, node: fx.Node) -> Iterator[Pair]:
        """What a call allows about its results."""
        call = self.memory.calls[node]
        for result in tensors_in(node.meta["val"]):
            storage = result.untyped_storage()._cdata
            memory = self.memory.memories[storage]
            if memory.source is not node or storage not in self.value_index:
                continue
            index = self.value_index[storage]
            yield from self._over(index, node, call, result)
            yield from self._parts(index, node, call)
            yield from self._copies(index, node)
            yield from self._casts(index, node)

    def _over(
        self, index: int, node: fx.Node, call: NodeCall, result: torch.Tensor
    ) -> Iterator[Pair]:
        """The operands that a result may be written over."""
        value = self.values[index]
        cast = self._cast(node)
        for location in _overwritable(call):
            if tuple(location.sizes) != tuple(result.shape) or overlaps_itself(location.region):
                continue
            until = self.memory.last_reads(location.region, location.storage)
            if (until > value.born).any():
                continue
            dying = int((until == value.born).sum())
            for dtype, by_cast in ((result.dtype, False), (cast, True)):
                if dtype is not None and dtype.itemsize == location.dtype.itemsize:
                    yield from self._onto(index, location.storage, dying, by_cast)

    def _onto(self, index: int, storage: int, dying: int, cast: bool) -> Iterator[Pair]:
        if storage in self.value_index and self.value_index[storage] != index:
            other = self.value_index[storage]
            yield Pair(Sharing.OVER, index, other, dying, cast=cast)
        elif storage in self.space_index:
            other = self.space_index[storage]
            yield Pair(Sharing.OVER, index, other, dying, in_space=True, cast=cast)

    def _parts(self, index: int, node: fx.Node, call: NodeCall) -> Iterator[Pair]:
        """The operands that may be computed in the result of a call, which copies them."""
        if node.target not in JOINS and node.target not in SCATTERS:
            return
        dtype = node.meta["val"].dtype
        for operand in call.operands:
            location, part = operand.location, self.value_index.get(operand.location.storage)
            is_base = node.target in SCATTERS and operand.position == 0
            if part is None or is_base or location.dtype != dtype:
                continue
            # All of it, or its storage could not be there.
            covered = location.region.numel * dtype.itemsize
            if covered == self.values[part].needed and not overlaps_itself(location.region):
                yield Pair(Sharing.PART, part, index)

    def _copies(self, index: int, node: fx.Node) -> Iterator[Pair]:
        source = self._copied(node)
        if source is not None and source.storage in self.value_index:
            nbytes = len(np.unique(source.region.addresses()))
            yield Pair(Sharing.COPY, index, self.value_index[source.storage], nbytes)

    def _copied(self, node: fx.Node) -> Location | None:
        """What a call copies, if it does nothing else."""
        op, call = node.target, self.memory.calls[node]
        if not isinstance(op, OpOverload) or not call.operands:
            return None
        source = call.operands[1 if op is aten.copy.default else 0].location
        copies = op in COPIES or op is aten._to_copy.default or view_of_copy(op) is not None
        return source if copies and not _converts(node, source) else None

    def _cast(self, node: fx.Node) -> torch.dtype | None:
        """The dtype that the only user of a pointwise call casts its result to."""
        user = next(iter(node.users), None)
        if user is None or len(node.users) > 1 or user.target is not aten._to_copy.default:
            return None
        if not isinstance(node.target, OpOverload) or not facts(node.target).pointwise:
            return None
        dtype: torch.dtype = user.meta["val"].dtype
        return dtype if torch.can_cast(node.meta["val"].dtype, dtype) else None

    def _casts(self, index: int, node: fx.Node) -> Iterator[Pair]:
        if self._cast(node) is None:
            return
        (user,) = node.users
        storage = user.meta["val"].untyped_storage()._cdata
        if storage in self.value_index and self.value_index[storage] != index:
            yield Pair(Sharing.CAST, index, self.value_index[storage])


# --- values and calls -----------------------------------------------------------------------------


def _value(memory: StorageUse) -> Value:
    assert memory.source is not None
    needed = memory.needed | (memory.last_read != NEVER)
    until, counts = np.unique(memory.last_read[needed], return_counts=True)
    return Value(
        memory.source.name,
        memory.nbytes,
        int(needed.sum()),
        memory.born,
        memory.dies,
        tuple(zip(until.tolist(), counts.tolist(), strict=True)),
        memory.returned,
        _is_movable(memory.source),
    )


def _is_movable(node: fx.Node) -> bool:
    """True if the result of a call can be computed at a given address."""
    op = node.target
    if not isinstance(op, OpOverload):
        return False
    # Constants can be filled in, and copies can be copied there.
    if op in COPIES or op in JOINS or op in SCATTERS or view_of_copy(op) is not None:
        return True
    return op is aten._to_copy.default or not node.all_input_nodes or _has_out_kernel(op)


@functools.cache
def _has_out_kernel(op: OpOverload) -> bool:
    """True if a form of an op writes all results to `out=`, and computes nothing new for it."""
    packet = op.overloadpacket
    forms = (getattr(packet, name) for name in packet.overloads())
    return any(
        facts(form).kind is Kind.OUT and torch.Tag.generated not in form.tags for form in forms
    )


def _overwritable(call: NodeCall) -> Iterator[Location]:
    """The operands that a call may write over while it reads them."""
    op = call.op
    elementwise = op is not None and (facts(op).pointwise or op is aten._to_copy.default)
    unknown = op is None and "layouts" not in call.arguments
    form = None if op is None else _mutating_form(op)
    written = () if form is None else facts(form).writes
    for operand in call.operands:
        if op in SCATTERS:
            # What it stores may be there already, so that may overlap its base.
            if operand.position == 0:
                yield operand.location
        elif unknown or elementwise or operand.position in written:
            others = (other.location for other in call.read if other is not operand)
            if not any(_conflict(operand.location, other, elementwise) for other in others):
                yield operand.location


def _conflict(written: Location, read: Location, elementwise: bool) -> bool:
    """True if a kernel must not write one operand while it reads another one."""
    return written.overlaps(read) and not (elementwise and written.same_elements(read))


@functools.cache
def _mutating_form(op: OpOverload) -> OpOverload | None:
    """The overload that writes what a functional op computes to its operands, if any."""
    if op.namespace != "aten":
        return None
    name = op.overloadpacket.__name__
    plain = name.removesuffix("_functional")
    for candidate in dict.fromkeys((f"{name}_", f"{plain}_", plain, name)):
        packet = getattr(aten, candidate, None)
        for overload in packet.overloads() if packet is not None else ():
            form: OpOverload = getattr(packet, overload)
            if facts(form).kind is not Kind.OUT and functional_form(form) is op:
                return form
    return None


def _converts(node: fx.Node, source: Location) -> bool:
    """True if a copy changes bytes: for another dtype, or to resolve a lazy bit."""
    encodings = {
        (result.dtype, result.is_conj(), result.is_neg()) for result in tensors_in(node.meta["val"])
    }
    return encodings != {(source.dtype, source.conj, source.neg)}
