"""Second thoughts: going back on a decision that cost more than it saved.

The walk of `reinplace` takes each chance that it meets, and one can cost two later ones: a small
result that is written into a large base and returned makes the base the caller's, so that nothing
else may be written there and returned. So whenever something is refused that shares memory with a
value that is returned, the walk notes the decisions by which the two came to lie together: its
*regrets*. Then it is done again without one of them, a few times, and what allocates less and does
not take more memory at its peak is kept.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from reference_pass.alias_analysis import operand_storages, storage_of
from reference_pass.liveness import Liveness
from reference_pass.operator_forms import tensors_in
from reference_pass.regions import Size

WALKS = 8  # at most, after the first


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a graph allocates: calls with a result in a storage of their own (of a byte or more), and bytes at the peak.

    A storage is live from the call that makes it to the last that has it as an operand; outputs are
    live to the end. Inputs are not counted, nor bytes that go by symbols.
    """

    calls: int
    peak: int

    def saves(self, other: Footprint) -> bool:
        """True if this is less than another, and more in nothing."""
        return self != other and self.calls <= other.calls and self.peak <= other.peak


def footprint(graph: fx.Graph) -> Footprint:
    """The footprint of a graph with true metadata."""
    nbytes: dict[int, int] = {}
    born: dict[int, int] = {}
    dies: dict[int, int] = {}
    calls = 0
    for at, node in enumerate(graph.nodes):
        taken = operand_storages(node)
        dies |= dict.fromkeys(taken, at)
        if node.op != "call_function":
            continue  # inputs are there before and after, whatever the pass does
        own = {
            storage_of(each): each
            for each in tensors_in(node.meta["val"])
            if storage_of(each) not in taken
        }
        for number, tensor in own.items():
            size: Size = tensor.untyped_storage().nbytes()
            nbytes[number] = size if isinstance(size, int) else 0
            born[number] = dies[number] = at
        calls += any(nbytes[number] for number in own)
    changes = [0] * (len(graph.nodes) + 1)
    for number, size in nbytes.items():
        changes[born[number]] += size
        changes[dies[number] + 1] -= size
    return Footprint(calls, max(itertools.accumulate(changes)))


class Regrets:
    """What a walk may come to regret: of each value, what was written into it, and what that bars later."""

    def __init__(self, liveness: Liveness) -> None:
        self.liveness = liveness
        self.written: dict[
            fx.Node, str
        ] = {}  # into which values a result went, and by which node first
        self.found: dict[str, None] = {}

    def note(self, destination: fx.Node, by: fx.Node) -> None:
        """A result is written into a value from now on."""
        self.written.setdefault(destination, by.name)

    def look_for(self, destination: fx.Node) -> None:
        """Nothing may be written into a value: note by what it came to lie with others that are returned."""
        if not self.written:
            return
        own = self._chain(destination)
        for returned in self.liveness.returned_in(destination.meta["val"]):
            other = self._chain(returned)
            for way in (
                [each for each in own if each not in other],
                [each for each in other if each not in own],
            ):
                written = [self.written[each] for each in way if each in self.written]
                self.found |= dict.fromkeys(written[:1])

    def _chain(self, value: fx.Node) -> list[fx.Node]:
        """The views by which a value came from a base, the base first."""
        chain = [value]
        while chain[-1] in self.liveness.views:
            base = chain[-1].args[0]
            if not isinstance(base, fx.Node):
                break
            chain.append(base)
        return chain[::-1]


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk over a graph, which it changed: what it regrets, and what it decided."""

    graph: fx.Graph
    regrets: tuple[str, ...]
    decisions: tuple[Any, ...]


def best_walk(graph: fx.Graph, walk: Callable[[fx.Graph, frozenset[str]], Walk]) -> Walk:
    """The best of some walks: the first over a graph itself, the others over copies of it with something to be kept."""
    original = _copy(graph)
    kept: frozenset[str] = frozenset()
    best, tried = walk(graph, kept), {kept}
    if not best.regrets:
        return best
    regrets, least = list(best.regrets), footprint(best.graph)
    while regrets and len(tried) <= WALKS:
        more = kept | {regrets.pop(0)}
        if more in tried:
            continue
        tried.add(more)
        other = walk(_copy(original), more)
        less = footprint(other.graph)
        if less.saves(least):
            best, least, kept, regrets = other, less, more, list(other.regrets)
    return best


def _copy(graph: fx.Graph) -> fx.Graph:
    copied = copy.deepcopy(graph)
    copied.owning_module = graph.owning_module  # which holds what `get_attr` gets
    return copied
