"""Live ranges: who reads which bytes, and until when.

Time is the position of a node in the graph. A value is *read* at a position if what it holds matters there. Making a view
is no read, its users are; nor is asking for a size, or overwriting. A scatter reads its base but for what it stores over.
What is returned is read at the end, and the caller reads each input after that, unless the graph has overwritten it by then.

All questions go by storage: values of one storage are kept together, and only those that are still to be read. So a
question costs as much as there are live values in one storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_aggregate

from reference_pass.alias_analysis import tensors_in
from reference_pass.metadata import value_of
from reference_pass.operators import SCATTERS, aten, bind, facts, overwrites, unread
from reference_pass.regions import Region, contains, overlap

END = 1 << 62  # after all nodes: the caller


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a value at a position, but for some bytes.

    It is `weak` if it will store over the value without looking at it, and only asks for the memory.
    """

    at: int
    by: fx.Node | None
    but: Region | None = None
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes overwritten at a position, by a node that was in the graph before the pass (the epilogue)."""

    at: int
    by: fx.Node
    region: Region


@dataclass(slots=True)
class Memory:
    """The values in one storage that are still to be read, the writes to it that are known, and whether a caller sees it."""

    values: dict[fx.Node, list[Read]] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    is_input: bool = False


def storage_of(tensor: torch.Tensor) -> int:
    """What tells storages apart."""
    return int(tensor.untyped_storage()._cdata)


def is_view(node: fx.Node) -> bool:
    """True if all that a node gives is memory of its operands, and it writes nothing."""
    if node.op != "call_function" or (isinstance(node.target, OpOverload) and facts(node.target).writes):
        return False
    given = list(tensors_in(node.meta["val"]))
    operands = {storage_of(t) for each in node.all_input_nodes for t in tensors_in(each.meta["val"])}
    return bool(given) and all(storage_of(each) in operands for each in given)


class Liveness:
    """The live ranges of a graph with true metadata, kept true while operands are exchanged."""

    def __init__(self, graph: fx.Graph) -> None:
        self.position = {node: index for index, node in enumerate(graph.nodes)}
        self.memories: dict[int, Memory] = {}
        self.returned: Counter[fx.Node] = Counter()  # by how many places of the output
        self.views = {node for node in graph.nodes if is_view(node)}
        for node in graph.nodes:
            self._note(node)

    def memory(self, tensor: torch.Tensor) -> Memory:
        """The memory of a tensor's storage."""
        return self.memories.setdefault(storage_of(tensor), Memory())

    def _note(self, node: fx.Node) -> None:
        if node.op in ("placeholder", "get_attr"):
            for tensor in tensors_in(node.meta["val"]):
                self.memory(tensor).is_input = True
        elif node.op == "output":
            self.returned.update(nodes_in(node.args))
            for operand in node.all_input_nodes:
                self._add(operand, Read(END, node))
        elif node.target is aten.copy_.default:
            for tensor in written_by(node):
                self.memory(tensor).writes.append(Write(self.position[node], node, Region.of(tensor)))
        elif node.target is aten.set_.source_Tensor:  # the caller gets to see the source
            source = node.args[1]
            assert isinstance(source, fx.Node)
            self.returned[source] += 1
            self._add(source, Read(END, node))
        for operand, read in self._reads_by(node):
            self._add(operand, read)

    def _add(self, value: fx.Node, read: Read) -> None:
        for tensor in tensors_in(value.meta["val"]):
            self.memory(tensor).values.setdefault(value, []).append(read)

    def _reads_by(self, node: fx.Node) -> Iterator[tuple[fx.Node, Read]]:
        """What a node reads of its operands."""
        if node.op != "call_function" or node in self.views:
            return
        at = self.position[node]
        for operand, but, weak in contents_read(node):
            yield operand, Read(at, node, but, weak)

    # Questions. --------------------------------------------------------------------------------------------------------

    def later_reads(self, tensor: torch.Tensor, region: Region, after: int) -> Iterator[tuple[fx.Node | None, Read]]:
        """Who reads bytes of a region after a position, and sees what it holds at that position. None is the caller."""
        memory = self.memory(tensor)
        for value, reads in list(memory.values.items()):
            live = [each for each in reads if each.at > after]
            if live:
                memory.values[value] = live
            else:
                del memory.values[value]
            if live and any(overlap(Region.of(t), region) for t in tensors_in(value.meta["val"])):
                for read in live:
                    if read.but is not None and contains(read.but, region):
                        continue
                    if not self.overwritten(memory, region, after, read.at):
                        yield value, read

    def overwritten(self, memory: Memory, region: Region, after: int, before: int) -> bool:
        """True if the graph stores over all of a region between two positions."""
        return any(after < each.at < before and contains(each.region, region) for each in memory.writes)

    def caller_reads(self, tensor: torch.Tensor, region: Region, after: int) -> bool:
        """True if the caller sees what a region holds at a position, since it belongs to an input."""
        memory = self.memory(tensor)
        return memory.is_input and not self.overwritten(memory, region, after, END)

    def last_read(self, value: fx.Node) -> int:
        """The last position at which a value, or a view of it, is read."""
        last = -1
        todo = [value]
        while todo:
            each = todo.pop()
            for tensor in tensors_in(each.meta["val"]):
                last = max([last, *(read.at for read in self.memory(tensor).values.get(each, ()))])
            todo.extend(user for user in each.users if user in self.views)
        return last

    def escapes(self, tensor: torch.Tensor) -> bool:
        """True if a value in the storage of a tensor is returned."""
        return bool(self.returned_in(tensor))

    def returned_in(self, tensor: torch.Tensor) -> list[fx.Node]:
        """The returned values in the storage of a tensor; one that is returned twice is there twice."""
        number = storage_of(tensor)
        return [
            node
            for node, times in self.returned.items()
            if any(storage_of(each) == number for each in tensors_in(node.meta["val"]))
            for _ in range(times)
        ]

    # Changes. ----------------------------------------------------------------------------------------------------------

    def moved(self, value: fx.Node, old: Any) -> None:
        """The value of a node has other memory now; it was `old`."""
        reads: list[Read] = []
        for tensor in tensors_in(old):
            reads = self.memory(tensor).values.pop(value, reads)
        for read in reads:
            self._add(value, read)

    def replaced(self, value: fx.Node, by: fx.Node, memory_of: Any) -> None:
        """All users of a value, which had the memory `memory_of`, use another one now."""
        reads: list[Read] = []
        for tensor in tensors_in(memory_of):
            reads = self.memory(tensor).values.pop(value, reads)
        for read in reads:
            self._add(by, read)
        if value in self.returned:
            self.returned[by] += self.returned.pop(value)


def written_by(node: fx.Node) -> list[torch.Tensor]:
    """The tensors, on fakes, that a node writes."""
    assert isinstance(node.target, OpOverload)
    given = bind(node.target, node.args, node.kwargs)
    found: list[torch.Tensor] = []
    for name in facts(node.target).writes:
        found.extend(tensors_in(_values(given.get(name))))
    return found


def contents_read(node: fx.Node) -> Iterator[tuple[fx.Node, Region | None, bool]]:
    """The operands that a node reads, each with the bytes of it that it does not, and whether the read is weak."""
    op = node.target
    if not isinstance(op, OpOverload):
        for operand in node.all_input_nodes:
            yield operand, None, False
        return
    given = bind(op, node.args, node.kwargs)
    for name, value in given.items():
        if name in unread(op) or name in facts(op).outs:
            continue
        is_first = name == facts(op).names[0]
        for operand in nodes_in(value):
            yield operand, scattered(node) if is_first and op in SCATTERS else None, is_first and overwrites(op)


def scattered(node: fx.Node) -> Region | None:
    """The bytes of its base that a scatter stores over."""
    op = node.target
    assert isinstance(op, OpOverload)
    given = bind(op, node.args, node.kwargs)
    base = given.pop("self")
    given.pop("src")
    args = [_values(each) for each in given.values()]
    tensor = SCATTERS[op](base.meta["val"], *args)
    return Region.of(tensor)


def nodes_in(value: Any) -> list[fx.Node]:
    """All nodes in an argument, at any nesting, with repetition."""
    found: list[fx.Node] = []

    def note(leaf: Any) -> Any:
        if isinstance(leaf, fx.Node):
            found.append(leaf)
        return leaf

    map_aggregate(value, note)
    return found


def _values(argument: Any) -> Any:
    return map_aggregate(argument, lambda a: value_of(a) if isinstance(a, fx.Node) else a)
