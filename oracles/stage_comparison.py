"""A stage against the stage before it: which instruction overwrites a value that is read later.

A graph by itself does not say which value a later read should get: after `add_ = add_(x, 1)` both
`x` and `add_` are the new contents. The functional stage before it does say so. In both stages,
each byte has a version (see `ByteVersions`). Passes keep the names of the nodes that compute, also
where these become in-place ops, so a version names its node. A node of both stages must read the
same versions in both, and so must the caller, in outputs and inputs.

Reads may differ for other reasons than a clobber, such as another operand. So a difference is a
violation only if a store can be shown to have overwritten the right version, at the bytes read or
at those that they were copied from. All other differences are unknown. A read whose result nobody
uses is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import fx

from aliasproof.ir.regions import overlaps_itself
from aliasproof.oracles.forms import COMMUTATIVE, SCATTERS
from aliasproof.oracles.stage_run import (
    Location,
    NodeCall,
    NodeRun,
    StageRun,
    describe,
    location_of,
)
from aliasproof.oracles.verdict import Violation

# --- byte versions --------------------------------------------------------------------------------
#
# `ByteVersions`: for each byte of a stage's memory, the element that was stored there last.
#
# A version is an int64:
#
# - 0 if nothing is known,
# - negative for a byte that the caller passed; each such byte has a version of its own,
# - else the number of the node, the index of its result, and the index of the element. All bytes of
#   a computed element have one version, as a cast passes it on,
# - from `MIXED` on, a hash of several versions: a cast read bytes of several elements as one.
#
# Ops that only move data (`copy_`, `clone`, scatters, casts) move versions along, so a pass may
# add or drop them freely.


Versions: TypeAlias = npt.NDArray[np.int64]

aten = torch.ops.aten

RESULT, NODE, MIXED = 1 << 32, 1 << 46, 1 << 62  # per result, per node, first mixed version
_INPUT = 1 << 40  # more than the bytes of any input's storage

# Ops that move data, and the argument that they move. A cast counts as a move.
_COPIES: dict[object, str] = {
    aten.clone.default: "self",
    aten._to_copy.default: "self",
    aten.copy.default: "src",
    aten.copy_.default: "src",
}
# A scatter moves its base, and then its source into a view of the result.
MOVES: set[object] = {*_COPIES, *SCATTERS}


@dataclass(frozen=True, slots=True)
class NotedStore:
    """A store: its index and node, its location, and the versions that it overwrote.

    `source` is the location that it copied from; None if it computed the values.
    """

    at: int
    by: fx.Node
    location: Location
    old: Versions
    source: Location | None


@dataclass(slots=True)
class ByteVersions:
    """The version of each byte of each storage, while a stage's nodes are replayed in order.

    `numbers` gives each node its number; a node without a number makes version 0. `log` collects
    the stores; None to collect nothing.
    """

    run: StageRun
    numbers: Mapping[str, int]
    log: list[NotedStore] | None = None
    storages: list[Versions] = field(init=False)

    def __post_init__(self) -> None:
        # The largest size of each storage: a node may resize it, or view freed memory.
        self.storages = [np.zeros(nbytes, np.int64) for nbytes in self.run.nbytes]
        for number in self.run.inputs:
            memory = self.storages[number]
            memory[:] = -1 - number * _INPUT - np.arange(len(memory))

    def at(self, location: Location) -> Versions:
        """The versions of a tensor's bytes, as a view; the last dim are the bytes of an element."""
        return location.entries(self.storages[location.storage])

    def addresses(self, location: Location) -> Versions:
        """The byte addresses of a tensor in its storage, in the shape of `at`."""
        return location.entries(np.arange(len(self.storages[location.storage])))

    def step(self, index: int, node: NodeRun) -> None:
        """Replay one node."""
        call = node.call
        if call is None:
            return
        op = call.op
        given = {operand.argument: operand.location for operand in call.operands}
        # The source may be a number, as in `_to_copy(2, dtype=torch.float32)`.
        if op not in MOVES or (op not in SCATTERS and _COPIES[op] not in given):
            self._compute(index, node, call)
            return
        if op in SCATTERS:
            self._scatter(index, node, call, given)
            return
        # The functional `copy` clones the storage of `self`, so bytes around the tensor come along.
        if op is aten.copy.default:
            self._copy_around(given["self"], node.locations[0])
        target = given["self"] if op is aten.copy_.default else node.locations[0]
        self._copy(index, node, target, given[_COPIES[op]])

    def _compute(self, index: int, node: NodeRun, call: NodeCall) -> None:
        """New versions for new results, then for operands written.

        A mutating op and its functional form return their results in this order.
        """
        number = self.numbers.get(node.node.name, 0)
        targets = [*node.new_locations, *(operand.location for operand in call.written)]
        for result, location in enumerate(targets):
            first, count = number * NODE + result * RESULT, math.prod(location.sizes)
            # One version per element; it is broadcast to the bytes of the element.
            fresh = np.arange(first, first + count) if number else np.zeros(count, np.int64)
            self._store(index, node, location, fresh.reshape((*location.sizes, 1)))

    def _copy(self, index: int, node: NodeRun, target: Location, source: Location) -> None:
        moved = self.at(source)
        if target.dtype != source.dtype:
            moved = _cast(moved)
        self._store(index, node, target, spread(moved, target), source)

    def _scatter(
        self, index: int, node: NodeRun, call: NodeCall, given: Mapping[str, Location]
    ) -> None:
        (made,) = node.locations
        self._copy_around(given["self"], made)
        self._copy(index, node, made, given["self"])
        arguments = {
            name: value for name, value in call.arguments.items() if name not in ("self", "src")
        }
        assert call.op is not None
        # The view op computes the layout. Only the layout is needed, so it runs on `meta`; the real
        # tensor may have another shape by now.
        length = len(self.storages[made.storage]) // made.dtype.itemsize
        whole = torch.empty(length, dtype=made.dtype, device="meta")
        base = whole.as_strided(made.sizes, made.strides, made.offset)
        view: torch.Tensor = SCATTERS[call.op](base, **arguments)
        self._copy(index, node, location_of(view, made.storage), given["src"])

    def _copy_around(self, old: Location, new: Location) -> None:
        """A scatter clones the whole storage of its base, also the bytes that the base skips."""
        one, other = self.storages[old.storage], self.storages[new.storage]
        if len(one) == len(other) and old.same_layout(new):
            other[:] = one

    def _store(
        self,
        index: int,
        node: NodeRun,
        location: Location,
        versions: Versions,
        source: Location | None = None,
    ) -> None:
        target = self.at(location)
        # The old versions are copied: later stores change the array.
        if self.log is not None:
            self.log.append(NotedStore(index, node.node, location, target.copy(), source))
        if not overlaps_itself(location.region):
            target[...] = versions
            return
        # All values stored to one address are equal (else the store is a violation by itself), so
        # any of their versions is correct. The lowest is stored last, so that the choice is
        # deterministic.
        memory = self.storages[location.storage]
        stored = np.broadcast_to(versions, target.shape).ravel()
        order = np.argsort(-stored)
        memory[self.addresses(location).ravel()[order]] = stored[order]


def spread(moved: Versions, target: Location) -> Versions:
    """Versions of a source, broadcast to a target; per byte, or per element if it was cast."""
    shape = (*target.sizes, target.dtype.itemsize)
    if moved.ndim > len(shape):  # a copy may drop leading dims of size 1
        moved = moved.reshape(moved.shape[moved.ndim - len(shape) :])
    return moved if moved.shape == shape else np.broadcast_to(moved, shape)


def _cast(moved: Versions) -> Versions:
    """One version per element: a cast reads the bytes of an element (the last dim) together."""
    first, steps = moved[..., :1], np.arange(moved.shape[-1])
    computed = (moved == first).all(-1)
    # The bytes of an element that the caller passed have consecutive versions.
    as_passed = (moved == first - steps).all(-1)
    weights = _WEIGHTS[: moved.shape[-1]]
    mixed = MIXED + ((moved.view(np.uint64) * weights).sum(-1) >> np.uint64(2)).astype(np.int64)
    # An unknown byte makes the whole element unknown.
    several: Versions = np.where((moved == 0).any(-1), 0, mixed)
    return np.where(computed | as_passed, first[..., 0], several)[..., None]


# Odd numbers without a pattern, so that sums of different versions are different.
_WEIGHTS = np.random.Generator(np.random.PCG64(0)).integers(
    1 << 63, size=16, dtype=np.uint64
) | np.uint64(1)


# --- stage comparison -----------------------------------------------------------------------------


_MOST_LISTED = 64  # number of bytes that the evidence lists
LATER_READ = "overwrites a value that is read later"
INPUT_LEFT = "leaves an input overwritten"


@dataclass(frozen=True, slots=True)
class StageRead:
    """One read: the reader (the output node is the caller), the operand, its location, versions."""

    node: fx.Node
    what: str
    location: Location
    versions: Versions

    @property
    def reader(self) -> str:
        """The reader, for people."""
        return "the caller" if self.node.op == "output" else describe(self.node)


class Overwritten(NamedTuple):
    """Bytes of a storage that a store overwrote, and the versions that were there."""

    store: NotedStore
    storage: int
    addresses: Versions
    versions: Versions


class StageComparison:
    """Replays the later stage, and compares its reads with those of the stage before."""

    def __init__(self, before: StageRun, run: StageRun) -> None:
        self.before = before
        self.run = run
        self.violations: dict[tuple[fx.Node, fx.Node], Violation] = {}  # by writer and reader
        self.addresses: dict[tuple[fx.Node, fx.Node], Versions] = {}
        self.unknown: list[str] = []
        self.differs = False

    def judge(self) -> tuple[list[Violation], str]:
        """The violations, and the reason if some difference cannot be decided."""
        for run in (self.before, self.run):
            if run.error is not None:
                return [], run.raised
        if _input_locations(self.before) != _input_locations(self.run):
            return [], "the two stages do not take the same inputs"
        # From 1 on: version 0 means that nothing is known.
        numbers = {node.node.name: index for index, node in enumerate(self.before.nodes, 1)}
        meant = ByteVersions(self.before, numbers)
        reads = {node.node.name: read for _, node, read in _replay(meant)}
        # Most stages are right, so the first walk only finds out whether there is a difference.
        self._walk(meant, reads, None)
        if self.differs:
            # The log takes as much memory as all stores together, so it is kept only when needed.
            self._walk(meant, reads, [])
        return list(self.violations.values()), self.unknown[0] if self.unknown else ""

    def _walk(
        self,
        meant: ByteVersions,
        meant_reads: Mapping[str, list[StageRead]],
        log: list[NotedStore] | None,
    ) -> None:
        """Compare all reads. Without a log of stores, only `differs` is found out.

        `meant` has the versions after the stage before, and `meant_reads` those that each of its
        nodes reads.
        """
        meant_forms, forms = _forms(self.before), _forms(self.run)
        # A node that computes something else under an old name gets no number: its results are
        # unknown versions, so they match nothing.
        same = {
            name: meant.numbers[name]
            for name, form in forms.items()
            if meant_forms.get(name) == form
        }
        memory = ByteVersions(self.run, same, log)
        for index, node, reads in _replay(memory):
            name = node.node.name
            if name in same:
                self._compare(memory, index, forms[name], meant_reads.get(name), reads)
        end = len(self.run.nodes)
        self._compare(memory, end, "", _outputs(meant), _outputs(memory))
        for number in self.before.inputs:
            self._compare_input(memory, number, meant.storages[number])

    def _compare(
        self,
        memory: ByteVersions,
        at: int,
        form: str,
        meant: list[StageRead] | None,
        reads: list[StageRead],
    ) -> None:
        if meant is None:  # in the stage before, nobody uses the result
            return
        # Operands are compared by position. A pass may swap those of a commutative op.
        expected, actual = _shapes(meant), _shapes(reads)
        if expected != actual:
            # `add(y, neg)` becomes `add_(neg, y)` to be in place on its first operand.
            swapped = form in COMMUTATIVE and expected[::-1] == actual
            if not (swapped and _agree(meant[::-1], reads)):
                reader = reads[0].reader if reads else "a node"
                self.unknown.append(f"{reader} takes other operands than in the stage before")
            return
        if form in COMMUTATIVE and len(reads) == 2 and _agree(meant[::-1], reads):
            return
        for one, other in zip(meant, reads, strict=True):
            wrong = (one.versions != other.versions) | (other.versions == 0)
            if wrong.any():
                addresses = memory.addresses(other.location)[wrong]
                self._attribute(memory, at, other, addresses, one.versions[wrong], LATER_READ)

    def _compare_input(self, memory: ByteVersions, number: int, meant: Versions) -> None:
        """Compare the storage of an input, as the caller finds it after the run."""
        nbytes = self.run.storages[number].nbytes()
        if nbytes != self.before.storages[number].nbytes():
            self.unknown.append(
                f"the storage {number} of an input ends with another size than in the stage before"
            )
            return
        # A storage that shrank: the rest is not there any more.
        actual, meant = memory.storages[number][:nbytes], meant[:nbytes]
        wrong = (meant != actual) | (actual == 0)
        # The caller passed bytes with a negative version, so the input must end as it began.
        for kind, which in (
            (INPUT_LEFT, wrong & (meant < 0)),
            (LATER_READ, wrong & (meant >= 0)),
        ):
            if which.any():
                names = ", ".join(self._inputs_on(number))
                whole = Location(number, 0, (nbytes,), (1,), torch.uint8, conj=False, neg=False)
                read = StageRead(self.run.nodes[-1].node, f"input {names}", whole, actual)
                end = len(self.run.nodes)
                self._attribute(memory, end, read, which.nonzero()[0], meant[which], kind)

    def _inputs_on(self, storage: int) -> list[str]:
        """The names of the inputs on a storage."""
        return [
            node.node.name
            for node in self.run.nodes
            if node.node.op in ("placeholder", "get_attr")
            and any(location.storage == storage for location in node.locations)
        ]

    def _attribute(
        self,
        memory: ByteVersions,
        at: int,
        read: StageRead,
        addresses: Versions,
        meant: Versions,
        kind: str,
    ) -> None:
        """Name the instructions that overwrote the versions meant at these addresses."""
        self.differs = True
        if memory.log is None:
            return
        # Version 0 may be any value, so no store is at fault.
        known = meant != 0
        overwrites: list[Overwritten] = []
        storage = read.location.storage
        left = overwriters(memory, at, storage, addresses[known], meant[known], overwrites)
        # No violation: the read may be correct, as another computation of the same value.
        if left.size or not known.all():
            self.unknown.append(
                f"{read.reader} reads {read.what}, which cannot be matched with what it reads in "
                "the stage before"
            )
        for overwritten in overwrites:
            self._note(read, overwritten, kind)

    def _note(self, read: StageRead, overwritten: Overwritten, kind: str) -> None:
        """One violation per writer and reader; its evidence lists the bytes of all its reads."""
        key = overwritten.store.by, read.node
        addresses = np.union1d(self.addresses.get(key, []), overwritten.addresses).astype(np.int64)
        self.addresses[key] = addresses
        evidence = {
            "read by": read.reader,
            "what is read": read.what,
            "value overwritten": self._value(int(overwritten.versions[0])),
            "storage": overwritten.storage,
        }
        # The first read is shown; later reads of the same node add their bytes.
        if key in self.violations:
            evidence = dict(self.violations[key].evidence)
        listed = {"bytes": addresses[:_MOST_LISTED].tolist(), "bytes in all": len(addresses)}
        place = self.run.name(overwritten.store.by)
        self.violations[key] = Violation("clobbers", kind, place, {**evidence, **listed})

    def _value(self, version: int) -> str:
        """A version, for people."""
        if version < 0:
            return "as the caller passed it"
        if version >= MIXED:
            return "a value cast from bytes of several elements"
        node = self.before.nodes[version // NODE - 1].node
        return f"element {version % RESULT} of {describe(node)}, in stage {self.before.stage.name}"


def overwriters(
    memory: ByteVersions,
    before: int,
    storage: int,
    addresses: Versions,
    meant: Versions,
    overwrites: list[Overwritten],
) -> Versions:
    """Find the stores that overwrote the versions meant, here or where the bytes were copied from.

    Only stores before node number `before` count. Adds to `overwrites`; returns the positions in
    `addresses` of the bytes for which no store was found.
    """
    left = np.arange(len(addresses))  # positions that are not explained yet
    last_store = np.full(len(addresses), fill_value=True)  # no later store to this byte was seen
    # From the last store back, as a read sees the last one.
    for store in reversed(memory.log or ()):
        if not left.size:
            break
        if store.at >= before or store.location.storage != storage or not store.old.size:
            continue
        entry_at = np.full(len(memory.storages[storage]), -1)  # the store's entry, by address
        entry_at[memory.addresses(store.location).ravel()] = np.arange(store.old.size)
        entry = entry_at[addresses[left]]
        # This store overwrote the right version: it is at fault.
        hit = (entry >= 0) & (store.old.ravel()[entry] == meant[left])
        if hit.any():
            overwrites.append(Overwritten(store, storage, addresses[left[hit]], meant[left[hit]]))
        # Bytes that this store left until the read: the right version may have been lost before
        # the copy, at the place that it was copied from.
        copied_here = (entry >= 0) & last_store[left] & ~hit
        last_store[left[entry >= 0]] = False
        copied, entry, left = left[copied_here], entry[copied_here], left[~hit & ~copied_here]
        for source, origin, step in _origins(memory, store) if copied.size else ():
            # A cast passes on the version of the first byte; byte `step` has the one below.
            versions = np.where(meant[copied] < 0, meant[copied] - step, meant[copied])
            nobody = overwriters(memory, store.at, source, origin[entry], versions, overwrites)
            copied, entry = copied[nobody], entry[nobody]
        left = np.concatenate((left, copied))
    return left


def _origins(memory: ByteVersions, store: NotedStore) -> Iterator[tuple[int, Versions, int]]:
    """The storages and addresses that the bytes of a store were copied from.

    A cast reads an element together: then there is one result per byte of an element, with the
    index of that byte.
    """
    if store.source is None:
        return
    addresses = memory.addresses(store.source)
    if store.source.dtype == store.location.dtype:
        yield store.source.storage, spread(addresses, store.location).ravel(), 0
        return
    for step in range(store.source.dtype.itemsize):
        one_byte = spread(addresses[..., step : step + 1], store.location)
        yield store.source.storage, one_byte.ravel(), step


# --- reads ----------------------------------------------------------------------------------------


def _forms(run: StageRun) -> dict[str, str]:
    """What each call computes, by node: `add` for `add.Tensor`, `add_.Tensor` and `add.out`."""
    names = {
        node.node.name: str(
            node.call.computes.overloadpacket.__name__ if node.call.computes else ""
        )
        for node in run.nodes
        if node.call is not None
    }
    return {it: name.removesuffix("_functional").removesuffix("_") for it, name in names.items()}


def _computes(node: NodeRun, call: NodeCall) -> bool:
    """Whether it makes new values or returns tensor data; views and moves do not."""
    return call.op not in MOVES and bool(
        call.written or call.is_data_dependent or node.new_locations
    )


def _replay(memory: ByteVersions) -> Iterator[tuple[int, NodeRun, list[StageRead]]]:
    """Replay a stage. Yields each live node that computes, and what it reads."""
    needed = _live_nodes(memory.run)
    for index, node in enumerate(memory.run.nodes):
        if node.call is not None and node.node in needed and _computes(node, node.call):
            reads = [
                StageRead(node.node, it.argument, it.location, memory.at(it.location).copy())
                for it in node.call.read
            ]
            yield index, node, reads
        memory.step(index, node)


def _outputs(memory: ByteVersions) -> list[StageRead]:
    last = memory.run.nodes[-1]
    locations = last.locations if last.node.op == "output" else ()
    return [
        StageRead(last.node, f"output {index}", location, memory.at(location).copy())
        for index, location in enumerate(locations)
    ]


def _shapes(reads: list[StageRead]) -> list[tuple[int, ...]]:
    return [read.versions.shape for read in reads]


def _agree(meant: Iterable[StageRead], reads: Iterable[StageRead]) -> bool:
    """Whether all versions are known and the same."""
    return all(
        np.array_equal(one.versions, other.versions) and other.versions.all()
        for one, other in zip(meant, reads, strict=True)
    )


def _input_locations(run: StageRun) -> list[tuple[Location, ...]]:
    return [node.locations for node in run.nodes if node.node.op in ("placeholder", "get_attr")]


def _has_effect(call: NodeCall) -> bool:
    """Whether it does more than return a value: it writes, or raises (`_assert_async`)."""
    return call.mutates or (
        call.is_data_dependent and call.computes is not None and not call.computes._schema.returns
    )


def _live_nodes(run: StageRun) -> set[fx.Node]:
    """The live nodes: the output, nodes with an effect, and all that these use."""
    needed: set[fx.Node] = set()
    for node in reversed(run.nodes):
        has_effect = node.call is not None and _has_effect(node.call)
        if node.node.op == "output" or node.node in needed or has_effect:
            needed.add(node.node)
            needed.update(node.node.all_input_nodes)
    return needed
