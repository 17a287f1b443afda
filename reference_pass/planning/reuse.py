"""Which storage a result takes over, once nobody reads what is in it.

Every storage is an interval of time, as high as it has bytes. FX frees a storage after its last
use, and the allocator may hand it out again, so the sum of the live bytes is what a graph needs.
To take over a storage saves an allocation. It costs bytes: the storage is kept until it is taken
over, and it may be larger than the result. So it is taken over only if the peak stays where it is.

This is linear scan, as for registers: the results in order of time, each into the smallest storage
that is free. Before that, results are put beside what a call reads, in a storage that dies there.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import fx

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.planning.offers import can_be_elsewhere
from aliasproof.reference_pass.planning.timeline import Lifetime, lifetimes, live_bytes
from aliasproof.reference_pass.regions import Region


@dataclass(frozen=True, slots=True, order=True)
class Free:
    """A storage of `nbytes` bytes that is free after `since`; `holder` names a value on it."""

    nbytes: int
    since: int
    holder: str


# Memory that a result takes over: the name of a value on the storage, and an offset in bytes.
Place: TypeAlias = tuple[str, int]


def storages_to_reuse(graph: fx.Graph) -> dict[str, Place]:
    """By the name of each result that takes over memory: where that is."""
    lives = lifetimes(graph)
    holders, length = _holders(graph, lives), len(graph.nodes)
    beside = _beside_operands(lives, holders, length)
    scan = _Scan(live_bytes(list(lives.values()), length), holders)
    for storage, life in lives.items():  # in order of allocation
        scan.allocate(storage, life)
    return beside | {name: (holder, 0) for name, holder in scan.taken.items()}


def _holders(graph: fx.Graph, lives: dict[int, Lifetime]) -> dict[int, str]:
    """The first node whose value is a tensor on a storage, for each storage."""
    holders: dict[int, str] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and storage_of(value) in lives:
            holders.setdefault(storage_of(value), node.name)
    return holders


# --- in the storage of an operand -----------------------------------------------------------------
#
#     h = exp(x)                  4 MB
#     y = h[:1] + b               h dies here; y is written behind the row that is read


ALIGNED = 64  # bytes: as the allocator of torch places what it allocates


def _beside_operands(
    lives: dict[int, Lifetime], holders: dict[int, str], length: int
) -> dict[str, Place]:
    """Results that have room in the storage of an operand which dies there, beside what is read.

    That saves their bytes while the call runs. Changes the lives: the operand's storage lives on.
    """
    taken: dict[str, Place] = {}
    live = live_bytes(list(lives.values()), length)
    peak = max(live, default=0)
    for own, life in list(lives.items()):
        if not life.nbytes or life.returned or not can_be_elsewhere(life.node):
            continue
        for storage, start in _rooms(life, lives):
            kept = lives[storage].nbytes - life.nbytes
            after = range(life.born + 1, life.dies + 1)
            if storage not in holders or any(live[time] + kept > peak for time in after):
                continue
            taken[life.node.name] = holders[storage], start
            lives[storage] = replace(lives[storage], dies=life.dies)
            del lives[own]
            live[life.born] -= life.nbytes
            for time in after:
                live[time] += kept
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


@dataclass(slots=True)
class _Scan:
    """The scan: the live bytes by now, and the storages that are in use, or free."""

    live: list[int]
    holders: dict[int, str]
    taken: dict[str, str] = field(default_factory=dict)
    in_use: list[tuple[int, int, str]] = field(default_factory=list)  # (dies, nbytes, holder)
    free: list[Free] = field(default_factory=list)  # by size
    peak: int = 0

    def __post_init__(self) -> None:
        self.peak = max(self.live, default=0)

    def allocate(self, storage: int, life: Lifetime) -> None:
        """Give a result a free storage, if one costs no peak; else a new one."""
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
        """Move the storages whose last use is before now to those that are free."""
        while self.in_use and self.in_use[0][0] < now:
            dies, nbytes, holder = self.in_use.pop(0)
            insort(self.free, Free(nbytes, dies, holder))

    def _free_for(self, life: Lifetime) -> Free | None:
        """The smallest free storage with room that costs no peak."""
        at = bisect_left(self.free, Free(life.nbytes, -1, ""))
        while at < len(self.free):
            free = self.free[at]
            if self._most(free.since + 1, life.born) + free.nbytes > self.peak:
                del self.free[at]  # it cannot be kept for as long, nor for longer
            # A result that is returned gets no larger storage than in eager.
            elif life.returned and free.nbytes != life.nbytes:
                return None
            elif self._most(life.born, life.dies + 1) + free.nbytes - life.nbytes > self.peak:
                return None  # nor would a larger one be possible
            else:
                return self.free.pop(at)
        return None

    def _most(self, start: int, end: int) -> int:
        return max(self.live[start:end], default=0)

    def _keep(self, free: Free, life: Lifetime) -> None:
        for time in range(free.since + 1, life.born):
            self.live[time] += free.nbytes
        for time in range(life.born, life.dies + 1):
            self.live[time] += free.nbytes - life.nbytes
