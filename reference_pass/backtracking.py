"""Backtracking: to take back a decision that costs more than it saves.

The walk of `reinplace` is greedy, and one decision can forbid two later ones. A small result that
is written into a large base, and returned, makes the base visible to the caller. Then nothing else
can be written there and returned.

So when a write into a value is refused that shares memory with a returned value, the walk notes the
decisions that made the two share memory: the *backtrack points*. Then the walk is done again
without one of them, a few times. The walk that allocates less, and has no higher peak, is kept.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.storages import operand_storages, storage_of, value_of
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.regions import Size

MOST_RETRIES = 8  # walks after the first one


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a graph allocates.

    `calls` counts the calls with a result of at least one byte in a storage of its own. `peak` is
    the largest number of bytes that are live at once. A storage is live from the call that makes it
    to its last use as an operand; an output is live to the end. Inputs do not count. Symbolic
    sizes count as their hints, or zero.
    """

    calls: int
    peak: int

    def saves(self, other: Footprint) -> bool:
        """True if this is less than another in one number, and not more in the other."""
        return self != other and self.calls <= other.calls and self.peak <= other.peak


def footprint(graph: fx.Graph, value: Callable[[fx.Node], Any] = value_of) -> Footprint:
    """The footprint of a graph with these values of its nodes; by default, its metadata."""
    nbytes: dict[int, int] = {}
    born: dict[int, int] = {}
    dies: dict[int, int] = {}
    calls = 0
    for at, node in enumerate(graph.nodes):
        taken = operand_storages(node, value)
        # Overwritten by each later use, so the last one stays.
        dies |= dict.fromkeys(taken, at)
        if node.op != "call_function":
            continue  # inputs are there before and after, whatever the pass does
        own = {
            storage_of(tensor): tensor
            for tensor in tensors_in(value(node))
            if storage_of(tensor) not in taken
        }
        for storage, tensor in own.items():
            size: Size = tensor.untyped_storage().nbytes()
            nbytes[storage] = size if isinstance(size, int) else size.node.hint or 0
            # A storage that is never an operand dies where it is born.
            born[storage] = dies[storage] = at
        calls += any(nbytes[storage] for storage in own)
    # The peak is the largest prefix sum of what is allocated and freed at each position.
    changes = [0] * (len(graph.nodes) + 1)
    for storage, size in nbytes.items():
        changes[born[storage]] += size
        changes[dies[storage] + 1] -= size
    return Footprint(calls, max(itertools.accumulate(changes)))


class BacktrackPoints:
    """The decisions that made a later candidate fail; `found` has the names of their nodes."""

    def __init__(self, liveness: Liveness) -> None:
        self.liveness = liveness
        # The values that results were written into, and the first node that did so.
        self.written: dict[fx.Node, str] = {}
        self.found: dict[str, None] = {}

    def note(self, destination: fx.Node, by: fx.Node) -> None:
        """A node writes its result into a value from now on."""
        self.written.setdefault(destination, by.name)

    def look_for(self, destination: fx.Node) -> None:
        """A write into a value is refused: note what made it share memory with returned values."""
        if not self.written:
            return
        own = self._chain(destination)
        for returned in self.liveness.returned_in(destination.meta["val"]):
            other = self._chain(returned)
            # From where the two chains part, the first write on each of them joined the two.
            for rest in (
                [value for value in own if value not in other],
                [value for value in other if value not in own],
            ):
                written = [self.written[value] for value in rest if value in self.written]
                self.found |= dict.fromkeys(written[:1])

    def _chain(self, value: fx.Node) -> list[fx.Node]:
        """A value and the views that it was made by, from the base on."""
        chain = [value]
        while chain[-1] in self.liveness.views:
            base = chain[-1].args[0]
            # A view op that takes a list has no single base.
            if not isinstance(base, fx.Node):
                break
            chain.append(base)
        return chain[::-1]


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk over a graph, which it changed: its backtrack points, and what it decided."""

    graph: fx.Graph
    backtrack_points: tuple[str, ...]
    decisions: tuple[Any, ...]


def best_walk(graph: fx.Graph, walk: Callable[[fx.Graph, frozenset[str]], Walk]) -> Walk:
    """The best of some walks; `walk` takes a graph and the names of nodes to keep out of place.

    The first walk is over the graph itself, the others are over copies of it.
    """
    original = _copy(graph)  # a walk changes its graph
    kept: frozenset[str] = frozenset()
    best, tried = walk(graph, kept), {kept}
    if not best.backtrack_points:
        return best
    points, least = list(best.backtrack_points), footprint(best.graph)
    while points and len(tried) <= MOST_RETRIES:
        more = kept | {points.pop(0)}
        # Two walks may name the same points in another order.
        if more in tried:
            continue
        tried.add(more)
        other = walk(_copy(original), more)
        less = footprint(other.graph)
        if less.saves(least):
            # The next walks start from the better one, and from its own backtrack points.
            best, least, kept, points = other, less, more, list(other.backtrack_points)
    return best


def _copy(graph: fx.Graph) -> fx.Graph:
    copied = copy.deepcopy(graph)
    copied.owning_module = graph.owning_module  # it has the attributes that `get_attr` gets
    return copied


def has_higher_peak(compiled: fx.GraphModule) -> bool:
    """True if the captured graph, which writes where the program does, needs less memory.

    The passes remove each mutation, and do not put all of them back: not through views of one
    input that lie between each other, for example. The captured graph is right as it is.
    """
    captured: Footprint = compiled.meta["captured_footprint"]
    return captured.peak < footprint(compiled.graph).peak
