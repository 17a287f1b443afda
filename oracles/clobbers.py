"""Oracle *hazards*: no instruction of a stage with mutation reads, or leaves to others, bytes that it has spoilt.

By itself, an instruction must not

- read bytes that it overwrites at other positions (an elementwise op may read the very element that
  it writes),
- write through memory that overlaps itself (but to store one value there), or the same memory
  through two arguments.

And it must not overwrite a value that is read later. A graph alone does not say which value a later
read means: after `add_ = add_(x, 1)` both `x` and `add_` stand for the new contents. So the stage
is held against the one before it. In both, each byte has a *version*: which element of which node's
result was stored there last, or that it is as the caller passed it. Passes keep the names of the
nodes that compute, also where these become in-place, so versions go by names; ops that only move
numbers (`copy_`, `clone`, scatters, casts) move versions along, so a pass may add or drop them
freely. A node that stands in both stages must read the versions that it reads there, and the caller
must find them in outputs and inputs.

What a node reads may differ for other reasons than a hazard. So a violation is only what can be
shown: at the bytes read, or at those that they were copied from, the right version did lie, until
an instruction overwrote it. All other differences are unknown. Reads of which nothing comes are no
reads.

Compare `can_inplace` in `torch/_inductor/fx_passes/reinplace.py`, which asks who else uses the
storage, not the bytes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import fx
from torch._ops import OpOverload

from oracles.forms import COMMUTATIVE, SCATTERS, functional_form
from oracles.stage_run import NodeCall, NodeRun, Operand, Place, StageRun, describe, place_of
from oracles.verdict import Report, Verdict, Violation, decided, not_applicable
from programs.definedness import UNTAGGED, read_as_number_first
from programs.regions import overlaps_itself
from programs.schemas import Kind, facts
from programs.storage_bytes import entries_of

Versions: TypeAlias = npt.NDArray[np.int64]

aten = torch.ops.aten


def judge_stage(run: StageRun, before: StageRun | None = None) -> Report:
    """Judge a stage that writes; `before` is the run on equal inputs of the functional stage that it was made from.

    Without one, nothing else tells what the stage means, so that each instruction is judged by
    itself alone.
    """
    if not any(each.call is not None and each.call.written for each in run.nodes):
        return not_applicable("nothing is written") if run.error is None else _raised(run)
    violations = [
        violation
        for each in run.nodes
        if each.call is not None
        for violation in _by_itself(run, each, each.call)
    ]
    if before is None:
        return decided(violations) if violations or run.error is None else _raised(run)
    spoilt, reason = _Comparison(before, run).judge()
    violations += spoilt
    if violations or not reason:
        return decided(violations)
    return Report(Verdict.UNKNOWN, reason=reason)


def _raised(run: StageRun) -> Report:
    assert run.error is not None
    node, error = run.error
    return Report(
        Verdict.UNKNOWN, reason=f"{run.name(node)} raises {type(error).__name__}: {error}"
    )


# --- each instruction by itself -------------------------------------------------------------------


def _by_itself(run: StageRun, node: NodeRun, call: NodeCall) -> Iterator[Violation]:
    written = (
        call.written if call.op is not None else []
    )  # what no operator does with memory is not known
    for index, target in enumerate(written):
        evidence = {"writes": _shown(target)}
        for operand in call.read:
            if not operand.written and _reads_elsewhere(call, target.place, operand):
                kind = "reads bytes that it overwrites at other positions"
                yield Violation(
                    "clobbers", kind, run.name(node.node), evidence | {"reads": _shown(operand)}
                )
        if _stores_twice(call, target):
            yield Violation(
                "clobbers",
                "writes through memory that overlaps itself",
                run.name(node.node),
                evidence,
            )
        for other in written[:index]:
            if target.place.meets(other.place):
                kind = "writes the same memory through two arguments"
                yield Violation(
                    "clobbers", kind, run.name(node.node), evidence | {"and writes": _shown(other)}
                )


def _reads_elsewhere(call: NodeCall, target: Place, operand: Operand) -> bool:
    assert call.op is not None
    number_first = read_as_number_first(call.op, operand.argument, len(operand.place.sizes))
    if number_first or not target.meets(operand.place):
        return False
    return not (_elementwise(call.op) and target.same_elements(operand.place))


@functools.cache
def _elementwise(op: OpOverload) -> bool:
    """True if element i of what is written depends on elements i alone, as the op or its functional form says."""
    form = functional_form(op)
    return op in UNTAGGED or facts(op).pointwise or (form is not None and facts(form).pointwise)


def _stores_twice(call: NodeCall, target: Operand) -> bool:
    """True if a byte is stored twice, and not with one value: a copy is looked at, a fill has but one."""
    assert call.op is not None
    if call.op is aten.copy_.default:
        return call.uneven
    fills = target.overwritten and facts(call.op).kind is not Kind.OUT
    return not fills and overlaps_itself(target.place.region)


def _shown(operand: Operand) -> dict[str, object]:
    region = operand.place.region
    return {
        "argument": operand.argument,
        "storage": operand.place.storage,
        "start in bytes": region.start,
        "sizes": list(region.sizes),
        "strides in bytes": list(region.strides),
        "bytes an element": region.itemsize,
    }


# --- versions -------------------------------------------------------------------------------------

# A version is a number: 0 if nothing is known, negative for a byte that the caller passed, else the
# node, the number of its result, and the element. All bytes of an element that was computed have
# one version, as a cast passes it on. What is cast from bytes of several elements has a version
# from `_MIXED` on, which stands for just these.
_RESULT, _NODE, _MIXED = 1 << 32, 1 << 46, 1 << 62


@dataclass(frozen=True, slots=True)
class _Stored:
    """One store: by the how-manieth node, where, what was there, and where it was copied from, if it was."""

    at: int
    by: fx.Node
    place: Place
    old: Versions
    source: Place | None


@dataclass(slots=True)
class _Memory:
    """The version of each byte of each storage. `numbers` says which node has which number; others make version 0.

    The log of stores is kept if there is one.
    """

    run: StageRun
    numbers: Mapping[str, int]
    log: list[_Stored] | None = None
    storages: list[Versions] = field(init=False)

    def __post_init__(self) -> None:
        self.storages = [np.zeros(each, np.int64) for each in self.run.nbytes]
        for number in self.run.inputs:
            memory = self.storages[number]
            memory[:] = -1 - (number << 40) - np.arange(len(memory))

    def at(self, place: Place) -> Versions:
        """The versions that a tensor shows, as a view; the last dimension are the bytes of an element."""
        return _seen(self.storages[place.storage], place)

    def step(self, index: int, node: NodeRun) -> None:
        """Do what a node did."""
        call = node.call
        if call is None:
            return
        op = call.op
        if op not in _MOVES:
            self._compute(index, node, call)
            return
        given = {each.argument: each.place for each in call.operands}
        if op in SCATTERS:
            self._scatter(index, node, call, given)
            return
        if op is aten.copy.default:
            self._whole_storage(given["self"], node.places[0])
        target = given["self"] if op is aten.copy_.default else node.places[0]
        self._copy(index, node, target, given[_COPIES[op]])

    def _compute(self, index: int, node: NodeRun, call: NodeCall) -> None:
        """New versions for what is made, then for what is written: a mutating op and its functional form agree on that."""
        number = self.numbers.get(node.node.name, 0)
        for result, place in enumerate(
            [*_made(node, call), *(each.place for each in call.written)]
        ):
            first, count = number * _NODE + result * _RESULT, math.prod(place.sizes)
            fresh = np.arange(first, first + count) if number else np.zeros(count, np.int64)
            self._store(index, node, place, fresh.reshape((*place.sizes, 1)))

    def _copy(self, index: int, node: NodeRun, target: Place, source: Place) -> None:
        shown = self.at(source)
        if target.dtype != source.dtype:
            shown = _cast(shown)
        self._store(index, node, target, _spread(shown, target), source)

    def _scatter(
        self, index: int, node: NodeRun, call: NodeCall, given: Mapping[str, Place]
    ) -> None:
        (made,) = node.places
        self._whole_storage(given["self"], made)
        self._copy(index, node, made, given["self"])
        arguments = {
            name: value for name, value in call.arguments.items() if name not in ("self", "src")
        }
        assert call.op is not None
        shown: torch.Tensor = SCATTERS[call.op](self._bare(made), **arguments)
        self._copy(index, node, place_of(shown, made.storage), given["src"])

    def _bare(self, place: Place) -> torch.Tensor:
        """A tensor without numbers as it lay there: what the run left may have another shape since."""
        length = len(self.storages[place.storage]) // place.dtype.itemsize
        whole = torch.empty(length, dtype=place.dtype, device="meta")
        return whole.as_strided(place.sizes, place.strides, place.offset)

    def _whole_storage(self, old: Place, new: Place) -> None:
        """A scatter clones the storage of its base, with what the base does not show."""
        one, other = self.storages[old.storage], self.storages[new.storage]
        if len(one) == len(other) and old[1:] == new[1:]:
            other[:] = one

    def _store(
        self,
        index: int,
        node: NodeRun,
        place: Place,
        versions: Versions,
        source: Place | None = None,
    ) -> None:
        there = self.at(place)
        if self.log is not None:
            self.log.append(_Stored(index, node.node, place, there.copy(), source))
        if not overlaps_itself(place.region):
            there[...] = versions
            return
        # What is stored in one place is one number, so any of the versions may stand for it: the
        # lowest, stored last.
        memory = self.storages[place.storage]
        stored, addresses = (
            np.broadcast_to(versions, there.shape).ravel(),
            _seen(np.arange(len(memory)), place).ravel(),
        )
        order = np.argsort(-stored)
        memory[addresses[order]] = stored[order]


def _cast(shown: Versions) -> Versions:
    """One version for the bytes of an element (the last dimension), which a cast reads together."""
    first, steps = shown[..., :1], np.arange(shown.shape[-1])
    one = (shown == first).all(-1) | (shown == first - steps).all(
        -1
    )  # computed, or as the caller passed it
    weights = _WEIGHTS[: shown.shape[-1]]
    mixed = _MIXED + ((shown.view(np.uint64) * weights).sum(-1) >> np.uint64(2)).astype(np.int64)
    several: Versions = np.where((shown == 0).any(-1), 0, mixed)
    return np.where(one, first[..., 0], several)[..., None]


# Odd numbers with no pattern: sums of versions by them tell mixtures apart.
_WEIGHTS = np.random.Generator(np.random.PCG64(0)).integers(
    1 << 63, size=16, dtype=np.uint64
) | np.uint64(1)


def _spread(shown: Versions, target: Place) -> Versions:
    """What a source shows, an entry a byte or (if it is cast) an element, as it is stored in a target: broadcast."""
    shape = (*target.sizes, target.dtype.itemsize)
    if shown.ndim > len(shape):  # a copy may drop leading dims of size 1
        shown = shown.reshape(shown.shape[shown.ndim - len(shape) :])
    return shown if shown.shape == shape else np.broadcast_to(shown, shape)


def _made(node: NodeRun, call: NodeCall) -> list[Place]:
    """Where results lie that lie in no operand's storage."""
    known = {each.place.storage for each in call.operands}
    return [each for each in node.places if each.storage not in known]


def _seen(memory: Versions, place: Place) -> Versions:
    """The part of a storage (an array with an entry a byte) that a tensor shows."""
    return entries_of(memory, place.sizes, place.strides, place.offset, place.dtype.itemsize)


# Ops that move numbers, and the argument that they move. A cast moves them, too.
_COPIES: dict[object, str] = {
    aten.clone.default: "self",
    aten._to_copy.default: "self",
    aten.copy.default: "src",
    aten.copy_.default: "src",
}
# Scatters move their base and, into the view of it that they store through, their source.
_MOVES: set[object] = {*_COPIES, *SCATTERS}


# --- a stage against the one before it ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Read:
    """What is read: by which node (the last stands for the caller), as what, where, and the versions there."""

    node: fx.Node
    what: str
    place: Place
    versions: Versions

    @property
    def by(self) -> str:
        """The reader, for people."""
        return "the caller" if self.node.op == "output" else describe(self.node)


@dataclass(slots=True)
class _Meaning:
    """What a functional stage means: the versions that each node reads, that the caller gets, and finds in the inputs."""

    numbers: dict[str, int]
    forms: dict[str, str]
    reads: dict[str, list[_Read]]
    outputs: list[_Read]
    inputs: dict[int, Versions]

    @classmethod
    def of(cls, run: StageRun) -> _Meaning:
        numbers = {each.node.name: index for index, each in enumerate(run.nodes, 1)}
        forms = {each.node.name: _form(each.call) for each in run.nodes if each.call is not None}
        memory = _Memory(run, numbers)
        meaning = cls(numbers, forms, {}, [], {})
        needed = _needed(run)
        for index, each in enumerate(run.nodes):
            if each.call is not None and each.node in needed and _computes(each, each.call):
                meaning.reads[each.node.name] = [
                    _read(memory, each.node, operand) for operand in each.call.read
                ]
            memory.step(index, each)
        meaning.outputs = _outputs(memory)
        meaning.inputs = {number: memory.storages[number] for number in run.inputs}
        return meaning


class _Overwritten(NamedTuple):
    """Bytes of a storage that a store has overwritten, and the versions that lay there."""

    stored: _Stored
    storage: int
    bytes: Versions
    versions: Versions


_LISTED = 64  # bytes that the evidence names one by one


class _Comparison:
    """Walks over the later stage, and holds what is read there against what the functional stage means."""

    def __init__(self, before: StageRun, run: StageRun) -> None:
        self.before = before
        self.run = run
        self.spoilt: dict[tuple[fx.Node, fx.Node], Violation] = {}
        self.bytes: dict[tuple[fx.Node, fx.Node], Versions] = {}
        self.open: list[str] = []
        self.differs = False

    def judge(self) -> tuple[list[Violation], str]:
        """The violations, and why the rest cannot be decided, if it cannot."""
        for run in (self.before, self.run):
            if run.error is not None:
                return [], _raised(run).reason
        if _inputs(self.before) != _inputs(self.run):
            return [], "the two stages do not take the same inputs"
        meant = _Meaning.of(self.before)
        self._walk(meant, None)
        if self.differs:  # a log takes as much memory as all stores together, so it is kept only where it is asked
            self._walk(meant, [])
        return list(self.spoilt.values()), self.open[0] if self.open else ""

    def _walk(self, meant: _Meaning, log: list[_Stored] | None) -> None:
        """Compare all reads. Without a log of stores, nobody is blamed for what differs."""
        calls = [(each.node.name, each.call) for each in self.run.nodes if each.call is not None]
        same = {
            name: meant.numbers[name]
            for name, call in calls
            if meant.forms.get(name) == _form(call)
        }
        memory = _Memory(self.run, same, log)
        needed = _needed(self.run)
        for index, each in enumerate(self.run.nodes):
            if (
                each.call is not None
                and each.node in needed
                and each.node.name in same
                and _computes(each, each.call)
            ):
                reads = [_read(memory, each.node, operand) for operand in each.call.read]
                self._compare(
                    memory, index, _form(each.call), meant.reads.get(each.node.name), reads
                )
            memory.step(index, each)
        self._compare(memory, len(self.run.nodes), "", meant.outputs, _outputs(memory))
        for number, versions in meant.inputs.items():
            self._compare_input(memory, number, versions)

    def _compare(
        self, memory: _Memory, at: int, form: str, meant: list[_Read] | None, reads: list[_Read]
    ) -> None:
        if meant is None:  # there, nothing comes of it
            return
        if [each.versions.shape for each in meant] != [each.versions.shape for each in reads]:
            swapped = form in COMMUTATIVE and [e.versions.shape for e in meant[::-1]] == [
                e.versions.shape for e in reads
            ]
            if not (swapped and self._agree(meant[::-1], reads)):
                reader = reads[0].by if reads else "a node"
                self.open.append(f"{reader} takes other operands than in the stage before")
            return
        if form in COMMUTATIVE and len(reads) == 2 and self._agree(meant[::-1], reads):
            return
        for one, other in zip(meant, reads, strict=True):
            self._compare_read(memory, at, one, other)

    @staticmethod
    def _agree(meant: Iterable[_Read], reads: Iterable[_Read]) -> bool:
        pairs = zip(meant, reads, strict=True)
        return all(
            np.array_equal(one.versions, other.versions) and other.versions.all()
            for one, other in pairs
        )

    def _compare_read(self, memory: _Memory, at: int, meant: _Read, read: _Read) -> None:
        wrong = (meant.versions != read.versions) | (read.versions == 0)
        if not wrong.any():
            return
        addresses = _seen(np.arange(len(memory.storages[read.place.storage])), read.place)
        kind = "overwrites a value that is read later"
        self._blame(memory, at, read, addresses[wrong], meant.versions[wrong], kind)

    def _compare_input(self, memory: _Memory, number: int, meant: Versions) -> None:
        nbytes = self.run.storages[number].nbytes()
        if nbytes != self.before.storages[number].nbytes():
            self.open.append(
                f"the storage {number} of an input ends with another size than in the stage before"
            )
            return
        found, meant = memory.storages[number][:nbytes], meant[:nbytes]
        wrong = (meant != found) | (found == 0)
        for kind, which in (
            ("leaves an input overwritten", wrong & (meant < 0)),
            ("overwrites a value that is read later", wrong & (meant >= 0)),
        ):
            if which.any():
                names = ", ".join(self._inputs_on(number))
                place = Place(number, 0, (len(found),), (1,), torch.uint8, conj=False, neg=False)
                read = _Read(self.run.nodes[-1].node, f"input {names}", place, found)
                self._blame(
                    memory, len(self.run.nodes), read, which.nonzero()[0], meant[which], kind
                )

    def _inputs_on(self, number: int) -> list[str]:
        nodes = (each for each in self.run.nodes if each.node.op in ("placeholder", "get_attr"))
        return [
            each.node.name
            for each in nodes
            if any(place.storage == number for place in each.places)
        ]

    def _blame(
        self, memory: _Memory, at: int, read: _Read, addresses: Versions, meant: Versions, kind: str
    ) -> None:
        self.differs = True
        if memory.log is None:
            return
        known = meant != 0
        found: list[_Overwritten] = []
        left = _overwriters(memory, at, read.place.storage, addresses[known], meant[known], found)
        if left.size or not known.all():
            self.open.append(
                f"{read.by} reads {read.what}, which cannot be matched with what it reads in the stage before"
            )
        for stored, storage, overwritten, versions in found:
            key = stored.by, read.node
            earlier = self.spoilt.get(key)
            evidence = (
                earlier.evidence
                if earlier is not None
                else {
                    "read by": read.by,
                    "what is read": read.what,
                    "value overwritten": self._named(int(versions[0])),
                    "storage": storage,
                }
            )
            self.bytes[key] = np.union1d(self.bytes.get(key, []), overwritten).astype(np.int64)
            listed = {
                "bytes": self.bytes[key][:_LISTED].tolist(),
                "bytes in all": len(self.bytes[key]),
            }
            self.spoilt[key] = Violation(
                "clobbers", kind, self.run.name(stored.by), {**evidence, **listed}
            )

    def _named(self, version: int) -> str:
        if version < 0:
            return "as the caller passed it"
        if version >= _MIXED:
            return "a number cast from bytes of several"
        node = self.before.nodes[version // _NODE - 1].node
        return f"element {version % _RESULT} of {describe(node)}, in stage {self.before.stage.name}"


def _overwriters(
    memory: _Memory,
    before: int,
    storage: int,
    addresses: Versions,
    meant: Versions,
    found: list[_Overwritten],
) -> Versions:
    """Find who overwrote the version meant at these bytes, or at those that they were copied from, before a moment.

    Adds to `found`; returns the positions in `addresses` of the bytes for which nobody did.
    """
    left = np.arange(len(addresses))  # not yet explained
    ours = np.full(len(addresses), fill_value=True)  # not yet stored over, as seen from the end
    for stored in reversed(memory.log or ()):
        if (
            not left.size
            or stored.at >= before
            or stored.place.storage != storage
            or not stored.old.size
        ):
            continue
        index_of = np.full(len(memory.storages[storage]), -1)
        index_of[_seen(np.arange(len(index_of)), stored.place).ravel()] = np.arange(stored.old.size)
        index = index_of[addresses[left]]
        hit = (index >= 0) & (stored.old.ravel()[index] == meant[left])
        if hit.any():
            found.append(_Overwritten(stored, storage, addresses[left[hit]], meant[left[hit]]))
        last = (index >= 0) & ours[left] & ~hit
        ours[left[index >= 0]] = False
        copied, index, left = left[last], index[last], left[~hit & ~last]
        for source, origin, step in _origins(memory, stored) if copied.size else ():
            versions = np.where(meant[copied] < 0, meant[copied] - step, meant[copied])
            nobody = _overwriters(memory, stored.at, source, origin[index], versions, found)
            copied, index = copied[nobody], index[nobody]
        left = np.concatenate((left, copied))
    return left


def _origins(memory: _Memory, stored: _Stored) -> Iterator[tuple[int, Versions, int]]:
    """The storage and addresses that bytes were copied from; of a cast, those of each byte of the elements in turn."""
    if stored.source is None:
        return
    addresses = _seen(np.arange(len(memory.storages[stored.source.storage])), stored.source)
    if stored.source.dtype == stored.place.dtype:
        yield stored.source.storage, _spread(addresses, stored.place).ravel(), 0
        return
    for step in range(stored.source.dtype.itemsize):
        yield (
            stored.source.storage,
            _spread(addresses[..., step : step + 1], stored.place).ravel(),
            step,
        )


def _form(call: NodeCall) -> str:
    """The name of what is computed, in place or not: `add` for `add.Tensor`, `add_.Tensor` and `add.out`."""
    if call.calls is None:
        return ""
    return str(call.calls.overloadpacket.__name__).removesuffix("_functional").removesuffix("_")


def _computes(node: NodeRun, call: NodeCall) -> bool:
    """True if it makes new numbers, or shows some: views do not, nor does what only moves numbers."""
    return call.op not in _MOVES and bool(call.written or call.shows_numbers or _made(node, call))


def _read(memory: _Memory, node: fx.Node, operand: Operand) -> _Read:
    return _Read(node, operand.argument, operand.place, memory.at(operand.place).copy())


def _outputs(memory: _Memory) -> list[_Read]:
    last = memory.run.nodes[-1]
    places = enumerate(last.places) if last.node.op == "output" else ()
    return [
        _Read(last.node, f"output {index}", place, memory.at(place).copy())
        for index, place in places
    ]


def _inputs(run: StageRun) -> list[tuple[Place, ...]]:
    return [each.places for each in run.nodes if each.node.op in ("placeholder", "get_attr")]


def _acts(call: NodeCall) -> bool:
    """True if something comes of it by itself: a write, or an error (`_assert_async`)."""
    return call.mutates or (
        call.shows_numbers and call.calls is not None and not call.calls._schema.returns
    )


def _needed(run: StageRun) -> set[fx.Node]:
    """The nodes of which something comes: what is returned, or written, and all that it is made from."""
    needed: set[fx.Node] = set()
    for each in reversed(run.nodes):
        if (
            each.node.op == "output"
            or each.node in needed
            or (each.call is not None and _acts(each.call))
        ):
            needed.add(each.node)
            needed.update(each.node.all_input_nodes)
    return needed
