"""What the calls of a functional graph allow to share bytes: the `Problem` of a graph.

The rules permit more rather than less, so that the smallest peak is a bound for every planner that
keeps the calls and their order, and adds no copies except to make those of the epilogue earlier:

- A pointwise call may write over an operand of the same sizes and item size, if it has a form that
  writes, a call with an in-place form over one of the same sizes. A call on lists writes over all
  of them, or none. A call without a schema may write over any such, unless it names the `layouts`
  of the copies that it works on.
- A part of a concatenation, and what a scatter stores, may be computed where it is copied to, and a
  scatter may be in its base, if what it stores over is dead. A copy may be the bytes that it is a
  copy of. These are the same contents. A copy of an input that nobody writes is no value at all,
  unless it is returned.
- A pointwise call may give the dtype that its only user casts it to, if an operand has it: else the
  kernel computes a new tensor and casts that.
- A kernel with an `out=` can compute its result anywhere, and so can constants and copies. None
  writes to memory that overlaps itself.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.regions import overlaps_itself
from aliasproof.ir.schemas import Kind, facts
from aliasproof.oracles.forms import SCATTERS, functional_form, view_of_copy
from aliasproof.oracles.proofs.graph_memory import (
    NEVER,
    GraphMemory,
    StorageUse,
    bytes_of,
    located,
    storage_of,
    stored_over,
)
from aliasproof.oracles.proofs.memory_problem import Content, Pair, Problem, Sharing, Space, Value
from aliasproof.oracles.proofs.same_contents import Bytes, SameContents, copied_parts, is_at
from aliasproof.oracles.stage_run import Location, NodeCall

aten = torch.ops.aten

JOINS = {aten.cat.default, aten.stack.default, aten.constant_pad_nd.default}
COPIES = {aten.clone.default, aten.lift_fresh_copy.default, aten.copy.default}


def problem_of(graph: fx.Graph) -> Problem:
    """The problem of planning a functional graph with true metadata.

    Raises `ValueError` for symbolic sizes.
    """
    rules = _Rules(GraphMemory(graph))
    for node in rules.memory.calls:
        rules.unite(node)
    rules.same.close()
    contents = tuple(rules.contents())
    pairs = dict.fromkeys(pair for node in rules.memory.calls for pair in rules.pairs(node))
    return Problem(tuple(rules.values), tuple(rules.spaces), tuple(pairs), contents)


@dataclass(slots=True)
class _Rules:
    """The values and spaces of a graph, by the storages that they are."""

    memory: GraphMemory
    values: list[Value] = field(default_factory=list)
    spaces: list[Space] = field(default_factory=list)
    value_index: dict[int, int] = field(default_factory=dict)
    space_index: dict[int, int] = field(default_factory=dict)
    same: SameContents = field(init=False)
    shared: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.same = SameContents(self.memory)
        for storage, memory in self.memory.memories.items():
            if memory.source is not None and memory.nbytes and not self._is_no_value(memory):
                self.value_index[storage] = len(self.values)
                self.values.append(_value(memory, memory.source in self.memory.unread))
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
        return Space(f"input {len(self.spaces)}", tuple(rows), copied, memory.nbytes)

    def _is_no_value(self, memory: StorageUse) -> bool:
        """True if its base, or what it copies, can stand in: for a scatter that nobody reads."""
        assert memory.source is not None
        if memory.source in self.memory.unread and memory.source.target in SCATTERS:
            return True
        source = self._copied(memory.source)
        if source is None or memory.returned:
            return False
        of = self.memory.memories[source.storage]
        return of.source is None and bool((of.written == NEVER).all())

    # --- contents ---------------------------------------------------------------------------------

    def unite(self, node: fx.Node) -> None:
        """Note the bytes of the result of a call that are equal to those of operands."""
        result = node.meta["val"]
        if not isinstance(result, torch.Tensor):
            return
        parts = copied_parts(node) if node.target in JOINS or node.target in SCATTERS else ()
        for part, shown in parts:
            # All of its storage, or that could not be there, except if it is.
            use, own = self.memory.memories[storage_of(part)], located(part).region
            whole = own.numel * part.itemsize == use.needed.sum()
            if (whole or _is_there(node, part)) and is_at(part, shown):
                self._equal(part, shown)
        if node.target in SCATTERS and overwrites_base(node, self.memory):
            self._keep(node, result)
        source = self._copied(node)
        if source is not None:
            self._equal_bytes(source, located(result))

    def _equal(self, one: torch.Tensor, other: torch.Tensor) -> None:
        self._equal_bytes(located(one), located(other))

    def _equal_bytes(self, one: Location, other: Location) -> None:
        if not overlaps_itself(one.region) and not overlaps_itself(other.region):
            self.same.unite(self._numbers(one), self._numbers(other))

    def _keep(self, scatter: fx.Node, result: torch.Tensor) -> None:
        """The bytes that a scatter does not store over are those of its base."""
        base = scatter.args[0].meta["val"]  # type: ignore[union-attr]
        one, other = located(base), located(result)
        if one[1:] != other[1:]:
            return
        nbytes = self.memory.of(base).nbytes
        kept = np.ones(nbytes, np.bool_)
        bytes_of(kept, stored_over(scatter))[...] = False
        mask = bytes_of(kept, one.region).reshape(-1)
        self.same.unite(self._numbers(one)[mask], self._numbers(other)[mask])

    def _numbers(self, location: Location) -> Bytes:
        nbytes = self.memory.memories[location.storage].nbytes
        return self.same.of_region(location.storage, nbytes, location.region)

    def contents(self) -> Iterator[Content]:
        """The bytes of all values, by class; fills `shared`."""
        readers: dict[int, list[tuple[int, int]]] = {}
        for storage, index in self.value_index.items():
            use = self.memory.memories[storage]
            needed = use.needed | (use.last_read != NEVER)
            classes = self.same.classes[self.same.numbers(storage, use.nbytes)[needed]]
            for each, until in zip(classes.tolist(), use.last_read[needed].tolist(), strict=True):
                readers.setdefault(each, []).append((index, until))
        sources: dict[int, tuple[int, int]] = {}
        for storage, index in self.space_index.items():
            use = self.memory.memories[storage]
            classes = self.same.classes[self.same.numbers(storage, use.nbytes)]
            untils = np.where(use.written == NEVER, len(self.memory.position), use.last_read)
            for each, until in zip(classes.tolist(), untils.tolist(), strict=True):
                if each in readers:
                    sources[each] = index, until
        counts = Counter((tuple(reader), sources.get(at)) for at, reader in readers.items())
        self.shared = {
            each: reader for each, reader in readers.items() if len(reader) > 1 or each in sources
        }
        for (reader, source), count in counts.items():
            yield Content(reader, count, source)

    # --- pairs ------------------------------------------------------------------------------------

    def pairs(self, node: fx.Node) -> Iterator[Pair]:
        """What a call allows about its results."""
        call, results = self.memory.calls[node], list(tensors_in(node.meta["val"]))
        operands = list(_overwritable(call))
        # A call on lists writes over each operand, or over none.
        on_lists = isinstance(node.meta["val"], list) and call.op is not None
        if on_lists and len(operands) != len(results):
            return
        overs: list[Pair] = []
        for at, result in enumerate(results):
            storage = storage_of(result)
            if self.memory.memories[storage].source is node and storage in self.value_index:
                index = self.value_index[storage]
                own = operands[at : at + 1] if on_lists else operands
                overs += self._over(index, node, own, result)
                yield from self._casts(index, node)
        results = [result for result in results if result.numel()]
        if not on_lists or len({pair.value for pair in overs}) == len(results):
            yield from overs

    def _over(
        self, index: int, node: fx.Node, operands: list[Location], result: torch.Tensor
    ) -> Iterator[Pair]:
        """The operands that a result may be written over."""
        value = self.values[index]
        cast = self._cast(node)
        for location in operands:
            if tuple(location.sizes) != tuple(result.shape) or overlaps_itself(location.region):
                continue
            until = self.memory.last_reads(location.region, location.storage)
            if (until > value.born).any():
                continue
            dying = self._numbers(location)[until.reshape(-1) == value.born]
            for dtype, by_cast in ((result.dtype, False), (cast, True)):
                if dtype is not None and dtype.itemsize == location.dtype.itemsize:
                    yield from self._onto(index, location.storage, dying, by_cast)

    def _onto(self, index: int, storage: int, dying: Bytes, cast: bool) -> Iterator[Pair]:
        held: Counter[tuple[int, ...]] = Counter()
        own, born = self.value_index.get(storage), self.values[index].born
        for each in self.same.classes[dying].tolist():
            readers = self.shared.get(each, ())
            holders = {other for other, until in readers if until > born and other != own}
            if holders:
                held[tuple(sorted(holders))] += 1
        rest = tuple((count, holders) for holders, count in held.items())
        if own is not None and own != index:
            yield Pair(Sharing.OVER, index, own, len(dying), cast=cast, held=rest)
        elif storage in self.space_index:
            other = self.space_index[storage]
            yield Pair(Sharing.OVER, index, other, len(dying), True, cast, rest)

    def _copied(self, node: fx.Node) -> Location | None:
        """What a call copies, if it does nothing else."""
        op, call = node.target, self.memory.calls.get(node)
        if call is None or not isinstance(op, OpOverload) or not call.operands:
            return None
        view = view_of_copy(op)
        if view is not None:
            operands = (node.args, node.kwargs)
            args, kwargs = fx.node.map_arg(operands, lambda operand: operand.meta["val"])
            shown = view(*args, **kwargs)
            if not isinstance(shown, torch.Tensor):
                return None
            source = located(shown)
        elif op in COPIES or op is aten._to_copy.default:
            source = call.operands[1 if op is aten.copy.default else 0].location
        else:
            return None
        same = tuple(source.sizes) == tuple(node.meta["val"].shape)
        return source if same and not _converts(node, source) else None

    def _cast(self, node: fx.Node) -> torch.dtype | None:
        """The dtype that the only user of a pointwise call casts its result to."""
        user = next(iter(node.users), None)
        if user is None or len(node.users) > 1 or user.target is not aten._to_copy.default:
            return None
        if not isinstance(node.target, OpOverload) or not facts(node.target).pointwise:
            return None
        value, dtype = node.meta["val"], user.meta["val"].dtype
        dtypes = {operand.location.dtype for operand in self.memory.calls[node].operands}
        if dtype not in dtypes or value.is_complex() != dtype.is_complex:
            return None
        return dtype if torch.can_cast(value.dtype, dtype) else None

    def _casts(self, index: int, node: fx.Node) -> Iterator[Pair]:
        if self._cast(node) is None:
            return
        (user,) = node.users
        storage = user.meta["val"].untyped_storage()._cdata
        if storage in self.value_index and self.value_index[storage] != index:
            yield Pair(Sharing.CAST, index, self.value_index[storage])


# --- values and calls -----------------------------------------------------------------------------


def _value(memory: StorageUse, unread: bool) -> Value:
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
        unread or _is_movable(memory.source),
        memory.shown,
    )


def _is_there(node: fx.Node, part: torch.Tensor) -> bool:
    """True if a scatter stores what is at its destination already."""
    if node.target not in SCATTERS:
        return False
    base = node.args[0].meta["val"]  # type: ignore[union-attr]
    return storage_of(base) == storage_of(part) and stored_over(node) == located(part).region


def overwrites_base(scatter: fx.Node, memory: GraphMemory) -> bool:
    """True if what a scatter stores over is not read later, so that it may be in its base."""
    base = scatter.args[0].meta["val"]  # type: ignore[union-attr]
    until = memory.last_reads(stored_over(scatter), storage_of(base))
    return not (until > memory.position[scatter]).any()


def _is_movable(node: fx.Node) -> bool:
    """True if the result of a call can be computed at a given address."""
    op = node.target
    if not isinstance(op, OpOverload):
        return False
    if any(overlaps_itself(located(result).region) for result in tensors_in(node.meta["val"])):
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
    if op in SCATTERS:
        return  # it has the contents of its base
    if elementwise and form is None and op is not None and not _is_free_to_write(op):
        return
    for operand in call.operands:
        if operand.location.conj or operand.location.neg:
            continue  # a kernel that does not know lazy bits resolves them in a new tensor
        if unknown or elementwise or operand.position in written:
            others = (other.location for other in call.read if other is not operand)
            if not any(_conflict(operand.location, other, elementwise) for other in others):
                yield operand.location


def _is_free_to_write(op: OpOverload) -> bool:
    return op is aten._to_copy.default or _has_out_kernel(op)


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
    augmented = f"__i{name[2:]}" if name.startswith("__") else name  # `&=` is `__iand__`
    for candidate in dict.fromkeys((f"{name}_", f"{plain}_", augmented, plain, name)):
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
