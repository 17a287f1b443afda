"""Storages over time: which storages a graph allocates, how large they are, and how long they live.

Time is the position of a node in the graph. FX frees a value after its last use, so a storage is
live from the call that allocates it to the last use of a value on it. While a call runs, both its
operands and its results are live.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.regions import Region, Size
from aliasproof.reference_pass.calls.storages import operand_storages, storage_of, value_of


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The life of one storage that a graph allocates.

    The call `node` allocates its `nbytes` bytes at position `born`. `dies` is the position of its
    last use, which is the output node if it is returned. A symbolic size counts as its hint, or as
    zero.
    """

    node: fx.Node
    nbytes: int
    born: int
    dies: int
    returned: bool


def lifetimes(graph: fx.Graph, value: Callable[[fx.Node], Any] = value_of) -> dict[int, Lifetime]:
    """The storages that a graph allocates, by their identity, in order of allocation.

    Inputs and constants are left out: they exist before and after. `value` gives the value of a
    node; by default, its metadata.
    """
    made: dict[int, tuple[fx.Node, int, int]] = {}
    dies: dict[int, int] = {}
    returned = operand_storages(graph.output_node(), value)
    for at, node in enumerate(graph.nodes):
        taken = operand_storages(node, value)
        # Overwritten by each later use, so the last one stays.
        dies |= dict.fromkeys(taken, at)
        if node.op != "call_function":
            continue
        for tensor in tensors_in(value(node)):
            storage = storage_of(tensor)
            if storage not in taken:
                made[storage] = node, size_or_hint(tensor.untyped_storage().nbytes()), at
                # A storage that is never an operand dies where it is born.
                dies[storage] = at
    return {
        storage: Lifetime(node, nbytes, at, dies[storage], storage in returned)
        for storage, (node, nbytes, at) in made.items()
    }


def size_or_hint(size: Size) -> int:
    """A size, or the hint of a symbolic one; zero if it has none."""
    return size if isinstance(size, int) else size.node.hint or 0


def live_bytes(lives: Sequence[Lifetime], length: int) -> list[int]:
    """The number of bytes that are live at each of `length` positions."""
    changes = [0] * (length + 1)
    for life in lives:
        changes[life.born] += life.nbytes
        changes[life.dies + 1] -= life.nbytes
    return list(itertools.accumulate(changes))[:length]


def peaks(graph: fx.Graph) -> tuple[int, int]:
    """The largest number of live bytes, without the inputs, and with them.

    The caller keeps the inputs, or drops them, as autograd drops tensors that it saved for a
    backward graph. So neither peak may rise.
    """
    own, dropped = _both_kinds(graph, list(lifetimes(graph).values()))
    return max(own, default=0), max(dropped, default=0)


def free_bytes(graph: fx.Graph, lives: Sequence[Lifetime]) -> list[int]:
    """The bytes that could be live in addition at each position, without raising either peak."""
    own, dropped = _both_kinds(graph, lives)
    most = max(own, default=0), max(dropped, default=0)
    return [min(most[0] - one, most[1] - other) for one, other in zip(own, dropped, strict=True)]


def _both_kinds(graph: fx.Graph, lives: Sequence[Lifetime]) -> tuple[list[int], list[int]]:
    """The live bytes at each position: without the inputs, and with them until their last use."""
    last: dict[int, int] = {}
    for at, node in enumerate(graph.nodes):
        last |= dict.fromkeys(operand_storages(node), at)
    seen = _bytes_seen(graph)
    inputs = [
        Lifetime(node, seen.get(storage, 0), 0, last.get(storage, 0), False)
        for storage, (node, _) in input_storages(graph).items()
    ]
    length = len(graph.nodes)
    return live_bytes(lives, length), live_bytes([*lives, *inputs], length)


def input_storages(graph: fx.Graph) -> dict[int, tuple[fx.Node, Size]]:
    """The storages of the inputs, each with an input on it, and its size in bytes."""
    return {
        storage_of(tensor): (node, tensor.untyped_storage().nbytes())
        for node in graph.find_nodes(op="placeholder")
        for tensor in tensors_in(value_of(node))
    }


def _bytes_seen(graph: fx.Graph) -> dict[int, int]:
    """The bytes of each storage from the first to the last that an input shows.

    A backend knows only these bytes of its inputs: the storage of its fakes may be larger.
    """
    ends: dict[int, tuple[int, int]] = {}
    for node in graph.find_nodes(op="placeholder"):
        for tensor in tensors_in(value_of(node)):
            region = Region.of(tensor)
            if region.empty:
                continue
            start, end = size_or_hint(region.start), size_or_hint(region.end)
            first, last = ends.get(storage_of(tensor), (start, end))
            ends[storage_of(tensor)] = min(first, start), max(last, end)
    return {storage: end - start for storage, (start, end) in ends.items()}


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lives of the storages of a reinplaced graph, at the times of its functional graph.

    `lives` has the life of the storage that a node is on, by the name of the node: reinplacing
    keeps names. `live` counts the live bytes at each time.
    """

    lives: dict[str, Lifetime]
    live: list[int]

    @classmethod
    def of(cls, reinplaced: fx.Graph, functional: fx.Graph) -> Timeline:
        """The timeline of a graph that was made from a functional one."""
        position = {node.name: at for at, node in enumerate(functional.nodes)}
        times: list[int] = []
        now = 0
        for node in reinplaced.nodes:
            # A view that reinplacing has added counts at the time of the call before it.
            now = max(now, position.get(node.name, now))
            times.append(now)
        lives = {
            storage: replace(life, born=times[life.born], dies=times[life.dies])
            for storage, life in lifetimes(reinplaced).items()
        }
        named = {
            node.name: lives[storage_of(tensor)]
            for node in reinplaced.nodes
            for tensor in tensors_in(node.meta.get("val"))
            if storage_of(tensor) in lives
        }
        return cls(named, live_bytes(list(lives.values()), len(position)))


# --- footprint ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Footprint:
    """The allocations of a graph.

    `calls` counts the calls with a result of at least one byte in a storage of its own. `peak` is
    the largest number of bytes that are live at once (`lifetimes`).
    """

    calls: int
    peak: int


def footprint(graph: fx.Graph, value: Callable[[fx.Node], Any] = value_of) -> Footprint:
    """The footprint of a graph with these values of its nodes; by default, its metadata."""
    lives = list(lifetimes(graph, value).values())
    calls = {life.node for life in lives if life.nbytes}
    return Footprint(len(calls), max(live_bytes(lives, len(graph.nodes)), default=0))
