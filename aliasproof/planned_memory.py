"""What memory planning does to a graph: where each result is, and the storages in time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from aliasproof.reference_pass.alias_analysis import Analysis
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import on_copies
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.candidates import How
from aliasproof.reference_pass.planning.join_buffers import buffer_name
from aliasproof.reference_pass.planning.timeline import Lifetime, lifetimes, live_bytes
from aliasproof.reports.explanation import ShownDecision
from aliasproof.reports.node_lines import NodeLine
from aliasproof.reports.storage_timeline import (
    MemoryPlan,
    ResultLocation,
    StorageRow,
    StorageTimeline,
)


@dataclass(frozen=True, slots=True)
class ObservedGraph:
    """A graph, its analysis in a run on fakes, and the lines that show it."""

    graph: fx.Graph
    analysis: Analysis
    lines: tuple[NodeLine, ...]

    @property
    def named(self) -> dict[str, tuple[fx.Node, NodeLine]]:
        """The nodes and their lines, by name."""
        nodes = zip(self.graph.nodes, self.lines, strict=True)
        return {node.name: (node, line) for node, line in nodes}

    def lives(self) -> dict[str, Lifetime]:
        """The storages that the graph allocates, by their letters."""
        letters: dict[int, str] = {}
        for node, line in zip(self.graph.nodes, self.lines, strict=True):
            tensors = [] if node.op == "output" else tensors_in(self.analysis.value(node))
            for tensor, layout in zip(tensors, line.tensors, strict=False):
                letters[storage_of(tensor)] = layout.storage
        lives = lifetimes(self.graph, self.analysis.value)
        return {letters[storage]: life for storage, life in lives.items()}


def memory_plan(graphs: Sequence[ObservedGraph], made: Sequence[ShownDecision]) -> MemoryPlan:
    """The plan of a functional graph, from that graph, the reinplaced and the planned one."""
    functional, _, planned = graphs
    locations = result_locations(functional, planned, made)
    return MemoryPlan(tuple(locations), *map(storage_timeline, graphs))


# --- storages in time -----------------------------------------------------------------------------


def storage_timeline(observed: ObservedGraph) -> StorageTimeline:
    """The storages that a graph allocates, and the inputs that it writes, in time."""
    lives = observed.lives()
    allocated: dict[int, list[str]] = {}
    for storage, life in lives.items():
        allocated.setdefault(life.born, []).append(storage)
    calls: list[int] = []  # the positions of those that allocate or write
    results: dict[str, list[tuple[int, str]]] = {}
    for at, line in enumerate(observed.lines):
        stored = dict.fromkeys((*allocated.get(at, ()), *line.writes))
        for storage in stored:
            results.setdefault(storage, []).append((len(calls), line.name))
        if stored:
            calls.append(at)
    inputs = [
        StorageRow(storage, None, 0, len(calls) - 1, True, tuple(written))
        for storage, written in results.items()
        if storage not in lives
    ]
    symbolic = {
        layout.storage
        for line in observed.lines
        for layout in line.tensors
        if not all(isinstance(size, int) for size in layout.sizes)
    }
    own = [
        StorageRow(
            storage,
            life.nbytes,
            bisect_right(calls, life.born) - 1,
            bisect_right(calls, life.dies) - 1,
            life.returned,
            tuple(results[storage]),
            unknown=not life.nbytes and storage in symbolic,
        )
        for storage, life in lives.items()
    ]
    live = live_bytes(list(lives.values()), len(observed.lines))
    return StorageTimeline((*inputs, *own), tuple(live[at] for at in calls))


# --- where each result is -------------------------------------------------------------------------


def result_locations(
    functional: ObservedGraph, planned: ObservedGraph, shown: Sequence[ShownDecision]
) -> Iterator[ResultLocation]:
    """Where the result of each call is that allocates memory in the functional graph."""
    wording = _Wording(functional, planned, {decision.node: decision for decision in shown})
    for node in dict.fromkeys(life.node for life in functional.lives().values()):
        decision = wording.decisions.get(node.name)
        refused = () if decision is None else tuple(map(str, decision.refused))
        op = str(node.args[0] if node.target is on_copies else node.target)
        is_new = node.name in wording.allocated
        yield ResultLocation(node.name, op, is_new, wording.location(node), refused)


# How a call is in place that is not in the planned graph any more.
GIVES_WAY = {
    How.REDUNDANT: "where it is already, in",
    How.SCATTER: "in its base",
    How.COPIED: "copied at once to the input",
    How.SHOWN: "not copied, but a view,",
}


class _Wording:
    """Says in words where results are in a planned graph."""

    def __init__(
        self,
        functional: ObservedGraph,
        planned: ObservedGraph,
        made: Mapping[str, ShownDecision],
    ) -> None:
        self.decisions = made
        self.named = planned.named
        self.lives = planned.lives()
        # The input or call that each node of the functional graph has its storage from.
        first: dict[str, str] = {}
        self.owners = {
            line.name: first.setdefault(line.tensors[0].storage, line.name)
            for line in functional.lines
            if line.tensors
        }
        self.allocated = {life.node.name: storage for storage, life in self.lives.items()}
        self.position = {node: at for at, node in enumerate(functional.graph.nodes)}
        # By its storage: the concatenation that a buffer is for.
        self.joins = {
            self.allocated[buffer_name(node)]: node
            for node in self.position
            if buffer_name(node) in self.allocated
        }

    def location(self, node: fx.Node) -> str:
        """Where the result of a node of the functional graph is."""
        decision = self.decisions.get(node.name)
        if decision is not None and decision.how is not None:
            return self._in_place(node, decision)
        if node.name in self.named:
            _, line = self.named[node.name]
            return f"in new memory: {_storages(layout.storage for layout in line.tensors)}"
        for operand in node.all_input_nodes:  # done by its operand, if this is a cast
            cast = self.decisions.get(operand.name)
            if cast is not None and cast.how == How.CAST_BACK.value:
                return self.location(operand)
        return self._joined(node)

    def _joined(self, node: fx.Node) -> str:
        """Where a concatenation is whose parts are stored into a buffer."""
        buffer = buffer_name(node)
        if buffer in self.allocated:
            return f"in the buffer of its parts: storage {self.allocated[buffer]}"
        storage = self._storage(buffer)
        if storage is not None:
            return self._elsewhere(node, storage)
        return "in no memory: the planned graph does not compute it"

    def _in_place(self, node: fx.Node, decision: ShownDecision) -> str:
        how = How(decision.how)
        storages = list(filter(None, map(self._storage, decision.into)))
        where = f": {_storages(storages)}" if storages else ""
        named = f"{', '.join(decision.into)}{where}"
        if how in GIVES_WAY:
            return f"{GIVES_WAY[how]} {named}"
        call, _ = self.named[node.name]
        operands = [operand.name for operand in nodes_in(call.args)]
        if how is not How.OUT or decision.into[0] in operands:
            return f"in place of its operand {named}"
        return self._elsewhere(node, storages[0])

    def _elsewhere(self, node: fx.Node, storage: str) -> str:
        """Where a result is that is not in an operand."""
        if storage not in self.lives:
            return f"in the input that it is copied to in the end: storage {storage}"
        join = self.joins.get(storage)
        if join is not None and self.position[node] < self.position[join]:
            return f"in the buffer of {join}: storage {storage}"
        life = self.lives[storage]
        _, held = self.named[life.node.name]
        was = next(layout.dtype for layout in held.tensors if layout.storage == storage)
        value = node.meta["val"]
        notes = [] if str(value.dtype) == f"torch.{was}" else [f"{was} before"]
        nbytes = value.untyped_storage().nbytes()
        notes += [] if nbytes == life.nbytes else [f"{nbytes} of its {life.nbytes} bytes"]
        text = f"in memory of {life.node}, which is not read any more: storage {storage}"
        return f"{text} ({', '.join(notes)})" if notes else text

    def _storage(self, name: str) -> str | None:
        """The storage in the planned graph of a node of one of the graphs; None if it has none."""
        # It may have given way to another node; a view that is not read is erased.
        while name not in self.named:
            decision = self.decisions.get(name)
            if decision is not None and decision.into:
                (name,) = decision.into
            elif self.owners.get(name, name) != name:
                name = self.owners[name]
            else:
                return None
        _, line = self.named[name]
        return line.tensors[0].storage


def _storages(letters: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(letters))
    return f"storage{'s' * (len(distinct) > 1)} {', '.join(distinct)}"
