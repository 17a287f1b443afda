"""Which storage a result takes over, once nothing reads its contents any more.

Every storage is an interval of time, as high as its number of bytes. FX frees a storage after its
last use, and the allocator may use it again, so a graph needs the sum of the live bytes. Taking
over a storage saves an allocation. It costs bytes: the storage is kept until it is taken over, and
it may be larger than the result. So it is taken over only if that does not raise the peak. Nor is
it kept while a kernel runs that may need memory of its own, such as a convolution: the graph does
not show how much that is.

This is linear scan, as for registers: the results in order of time, each into the smallest free
storage. Before that, results are put into inputs that are overwritten later, and next to the bytes
that a call reads, in a storage that dies there: both lower the peak.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten, is_pointwise
from aliasproof.reference_pass.calls.regions import Region
from aliasproof.reference_pass.calls.storages import (
    operand_storages,
    storage_of,
    value_of,
    written_tensors,
)
from aliasproof.reference_pass.liveness import is_view
from aliasproof.reference_pass.planning.offers import can_be_elsewhere
from aliasproof.reference_pass.planning.timeline import (
    Lifetime,
    free_bytes,
    input_storages,
    lifetimes,
)


@dataclass(frozen=True, slots=True, order=True)
class Free:
    """A storage of `nbytes` bytes that is free after `since`; `holder` names a value on it."""

    nbytes: int
    since: int
    holder: str


# Memory that a result takes over: the name of a value on the storage, and an offset in bytes.
Place: TypeAlias = tuple[str, int]


def storages_to_reuse(graph: fx.Graph) -> dict[str, Place]:
    """The memory that results take over, by the name of the result."""
    lives = lifetimes(graph)
    holders = _holders(graph, lives)
    elsewhere = _in_inputs(graph, lives)
    elsewhere |= _beside_operands(lives, holders, free_bytes(graph, list(lives.values())))
    scan = _Scan(free_bytes(graph, list(lives.values())), holders, _kernels_before(graph))
    for storage, life in lives.items():  # in order of allocation
        scan.allocate(storage, life)
    return elsewhere | {name: (holder, 0) for name, holder in scan.taken.items()}


def _holders(graph: fx.Graph, lives: dict[int, Lifetime]) -> dict[int, str]:
    """The first node whose value is a tensor on a storage, for each storage."""
    holders: dict[int, str] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and storage_of(value) in lives:
            holders.setdefault(storage_of(value), node.name)
    return holders


# --- in an input that is overwritten later --------------------------------------------------------


def _in_inputs(graph: fx.Graph, lives: dict[int, Lifetime]) -> dict[str, Place]:
    """Results in inputs whose contents nothing reads before they are overwritten.

    Removes the lives of these results: an input is there anyway.
    """
    taken: dict[str, Place] = {}
    gaps = _gaps(graph)
    for own, life in list(lives.items()):
        if life.returned or not life.nbytes or not can_be_elsewhere(life.node):
            continue
        fits = [gap for gap in gaps if gap.holds(life)]
        if fits:
            gap = min(fits, key=lambda gap: gap.nbytes)
            taken[life.node.name] = gap.holder, 0
            gap.start = life.dies + 1
            del lives[own]
    return taken


@dataclass(slots=True)
class _Gap:
    """An input is not used from `start` until a call overwrites it at `end`."""

    holder: str
    nbytes: int
    start: int
    end: int

    def holds(self, life: Lifetime) -> bool:
        return self.start <= life.born and life.dies < self.end and life.nbytes <= self.nbytes


def _gaps(graph: fx.Graph) -> list[_Gap]:
    inputs = {
        storage: (node.name, nbytes)
        for storage, (node, nbytes) in input_storages(graph).items()
        if isinstance(nbytes, int)
    }
    starts = dict.fromkeys(inputs, 0)
    gaps: list[_Gap] = []
    for at, node in enumerate(graph.nodes):
        used = operand_storages(node) & inputs.keys()
        for tensor in written_tensors(node, value_of):
            storage = storage_of(tensor)
            # A call that reads what it overwrites ends no gap: the conditions would refuse it.
            if storage in used:
                gaps.append(_Gap(*inputs[storage], starts[storage], at))
        starts |= dict.fromkeys(used, at + 1)
    return [gap for gap in gaps if gap.start < gap.end]


# --- in the storage of an operand -----------------------------------------------------------------
#
#     h = exp(x)                  4 MB
#     y = h[:1] + b               h dies here; y is written behind the row that is read


ALIGNED = 64  # bytes: the alignment of torch's allocator


def _beside_operands(
    lives: dict[int, Lifetime], holders: dict[int, str], room: list[int]
) -> dict[str, Place]:
    """Results that fit into the storage of an operand that dies there, beside the bytes in use.

    This saves their bytes while the call runs. Changes the lives: the operand's storage lives on.
    """
    taken: dict[str, Place] = {}
    for own, life in list(lives.items()):
        if not life.nbytes or life.returned or not can_be_elsewhere(life.node):
            continue
        for storage, start in _rooms(life, lives):
            kept = lives[storage].nbytes - life.nbytes
            after = range(life.born + 1, life.dies + 1)
            if storage not in holders or any(room[time] < kept for time in after):
                continue
            taken[life.node.name] = holders[storage], start
            lives[storage] = replace(lives[storage], dies=life.dies)
            del lives[own]
            room[life.born] += life.nbytes
            for time in after:
                room[time] -= kept
            break
    return taken


def _rooms(life: Lifetime, lives: dict[int, Lifetime]) -> Iterator[tuple[int, int]]:
    """The storages of operands that die at a call, with an offset where its result has room."""
    read: dict[int, list[Region]] = {}
    for operand in life.node.all_input_nodes:
        for tensor in tensors_in(operand.meta["val"]):
            read.setdefault(storage_of(tensor), []).append(Region.of(tensor))
    for storage, regions in read.items():
        if storage not in lives or lives[storage].dies != life.born:
            continue
        if not all(region.fixed and not region.empty for region in regions):
            continue
        behind = -(-max(region.end for region in regions) // ALIGNED) * ALIGNED
        if life.nbytes <= min(region.start for region in regions):
            yield storage, 0
        elif behind + life.nbytes <= lives[storage].nbytes:
            yield storage, behind


# --- in a storage that is free --------------------------------------------------------------------


def _kernels_before(graph: fx.Graph) -> list[int]:
    """The number of kernels before each position that may need memory of their own."""
    kernels = []
    for node in graph.nodes:
        op = node.target
        needs_none = isinstance(op, OpOverload) and (is_pointwise(op) or op in _COPIES)
        kernels.append(node.op == "call_function" and not is_view(node) and not needs_none)
    return list(itertools.accumulate(kernels, initial=0))


_COPIES = {
    aten.clone.default,
    aten._to_copy.default,
    aten.copy_.default,
    aten.empty_strided.default,
}


@dataclass(slots=True)
class _Scan:
    """The scan: the bytes that may be live in addition, and the storages in use, or free."""

    room: list[int]
    holders: dict[int, str]
    kernels: list[int]
    taken: dict[str, str] = field(default_factory=dict)
    in_use: list[tuple[int, int, str]] = field(default_factory=list)  # (dies, nbytes, holder)
    free: list[Free] = field(default_factory=list)  # by size

    def allocate(self, storage: int, life: Lifetime) -> None:
        """Give a result a free storage, if one does not raise the peak; else a new one."""
        self._release(life.born)
        nbytes, holder = life.nbytes, self.holders.get(storage)
        free = self._free_for(life) if nbytes and can_be_elsewhere(life.node) else None
        if free is not None:
            self.taken[life.node.name] = free.holder
            self._keep(free, life)
            nbytes, holder = free.nbytes, free.holder
        if holder is not None and not life.returned:
            insort(self.in_use, (life.dies, nbytes, holder))

    def _release(self, now: int) -> None:
        """Move the storages whose last use is before now to the free ones."""
        while self.in_use and self.in_use[0][0] < now:
            dies, nbytes, holder = self.in_use.pop(0)
            insort(self.free, Free(nbytes, dies, holder))

    def _free_for(self, life: Lifetime) -> Free | None:
        """The smallest free storage with room that does not raise the peak."""
        at = bisect_left(self.free, Free(life.nbytes, -1, ""))
        while at < len(self.free):
            free = self.free[at]
            runs = self.kernels[life.born] > self.kernels[free.since + 1]
            if runs or free.nbytes > self._room(free.since + 1, life.born, free.nbytes):
                del self.free[at]  # it cannot be kept until now, nor until any later call
            # A returned result gets no larger storage than in eager.
            elif life.returned and free.nbytes != life.nbytes:
                return None
            elif free.nbytes - life.nbytes > self._room(life.born, life.dies + 1, free.nbytes):
                return None  # a larger one would not fit either
            else:
                return self.free.pop(at)
        return None

    def _room(self, start: int, end: int, asked: int) -> int:
        """The bytes that may be live in addition, at each time; `asked` if there is no time."""
        return min(self.room[start:end], default=asked)

    def _keep(self, free: Free, life: Lifetime) -> None:
        for time in range(free.since + 1, life.born):
            self.room[time] -= free.nbytes
        for time in range(life.born, life.dies + 1):
            self.room[time] -= free.nbytes - life.nbytes
