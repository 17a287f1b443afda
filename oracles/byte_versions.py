"""`ByteVersions`: for each byte of a stage's memory, the element that was stored there last.

A version is an int64:

- 0 if nothing is known,
- negative for a byte that the caller passed; each such byte has its own,
- else the number of the node, the index of its result, and the index of the element. All bytes of
  a computed element have one version, as a cast passes it on,
- from `MIXED` on, a hash of several versions: a cast read bytes of several elements as one.

Ops that only move data (`copy_`, `clone`, scatters, casts) move versions along, so a pass may add
or drop them freely.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import fx

from aliasproof.ir.regions import overlaps_itself
from aliasproof.ir.storages import entries_of
from aliasproof.oracles.forms import SCATTERS
from aliasproof.oracles.location import Location, location_of
from aliasproof.oracles.node_call import NodeCall
from aliasproof.oracles.stage_run import NodeRun, StageRun

Versions: TypeAlias = npt.NDArray[np.int64]

aten = torch.ops.aten

RESULT, NODE, MIXED = 1 << 32, 1 << 46, 1 << 62  # what a result and a node add to a version
_INPUT = 1 << 40  # the most bytes of an input's storage

# Ops that move data, and the argument that they move. A cast moves data, too.
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
    """One store: the index and the node, where it stored, and the versions that were there before.

    `source` is where it copied from; None if it computed what it stored.
    """

    at: int
    by: fx.Node
    location: Location
    old: Versions
    source: Location | None


@dataclass(slots=True)
class ByteVersions:
    """The version of each byte of each storage, while a stage's nodes are replayed in order.

    `numbers` gives each node its number; a node without one makes version 0. `log` collects the
    stores, if it is a list.
    """

    run: StageRun
    numbers: Mapping[str, int]
    log: list[NotedStore] | None = None
    storages: list[Versions] = field(init=False)

    def __post_init__(self) -> None:
        # The largest size of each storage: a node may grow it, or view freed memory.
        self.storages = [np.zeros(nbytes, np.int64) for nbytes in self.run.nbytes]
        for number in self.run.inputs:
            memory = self.storages[number]
            memory[:] = -1 - number * _INPUT - np.arange(len(memory))

    def at(self, location: Location) -> Versions:
        """The versions of a tensor's bytes, as a view; the last dim are the bytes of an element."""
        return at(self.storages[location.storage], location)

    def addresses(self, location: Location) -> Versions:
        """The byte addresses of a tensor in its storage, in the shape of `at`."""
        return at(np.arange(len(self.storages[location.storage])), location)

    def step(self, index: int, node: NodeRun) -> None:
        """Replay one node."""
        call = node.call
        if call is None:
            return
        op = call.op
        if op not in MOVES:
            self._compute(index, node, call)
            return
        given = {operand.argument: operand.location for operand in call.operands}
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
        # The view op computes the layout. Only the layout is needed, so it runs on `meta`.
        view: torch.Tensor = SCATTERS[call.op](self._without_data(made), **arguments)
        self._copy(index, node, location_of(view, made.storage), given["src"])

    def _without_data(self, location: Location) -> torch.Tensor:
        """A tensor on `meta` with this layout: the real one may have another shape by now."""
        length = len(self.storages[location.storage]) // location.dtype.itemsize
        whole = torch.empty(length, dtype=location.dtype, device="meta")
        return whole.as_strided(location.sizes, location.strides, location.offset)

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
        # any of their versions will do. The lowest is stored last, so that the choice is fixed.
        memory = self.storages[location.storage]
        stored = np.broadcast_to(versions, target.shape).ravel()
        order = np.argsort(-stored)
        memory[self.addresses(location).ravel()[order]] = stored[order]


def at(per_byte: Versions, location: Location) -> Versions:
    """The entries for the bytes of a tensor, as a view of an array with an entry per byte."""
    sizes, strides, itemsize = location.sizes, location.strides, location.dtype.itemsize
    return entries_of(per_byte, sizes, strides, location.offset, itemsize)


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
    # Bytes of one element as the caller passed it have consecutive versions.
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
