"""Live ranges: who reads which bytes, and until when.

Time is the position of a node in the graph. A value is *read* at a position if what it holds
matters there. Making a view is no read, its users are; nor is asking for a size, or overwriting. A
scatter reads its base but for what it stores over. What is returned is read at the end, and the
caller reads each input after that, unless the graph has overwritten it by then.

All questions go by storage: values of one storage are kept together, and only those that are still
to be read. So a question costs as much as there are live values in one storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from reference_pass.alias_analysis import operand_storages, storage_of, written_tensors
from reference_pass.metadata import alike, operands_noted, set_value, value_of
from reference_pass.operator_forms import (
    COPIES_STORAGE,
    EPILOGUE,
    SCATTERS,
    aten,
    bind,
    facts,
    goes_by_place,
    nodes_in,
    on_values,
    overwrites,
    stores_through,
    tensors_in,
    unread,
    writes,
)
from reference_pass.regions import Region, contains, overlap

END = 1 << 62  # after all nodes: the caller


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a value at a position: of all its bytes, or, by a scatter, of those that it does not store over.

    It is `weak` if it will store over the value without looking at it, and only asks for the
    memory. It is of the `whole` storage if what lies around the value is read, too.
    """

    at: int
    by: fx.Node
    is_scatter: bool = False
    weak: bool = False
    whole: bool = False


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


def is_view(node: fx.Node) -> bool:
    """True if all that a node gives is memory of its operands, and it writes nothing."""
    if node.op != "call_function" or writes(node.target):
        return False
    given = {storage_of(each) for each in tensors_in(node.meta["val"])}
    return bool(given) and given <= operand_storages(node)


class Liveness:
    """The live ranges of a graph with true metadata; both are kept true while operands are exchanged."""

    def __init__(self, graph: fx.Graph, mode: FakeTensorMode) -> None:
        self.mode = mode
        self.position = {node: index for index, node in enumerate(graph.nodes)}
        self.memories: dict[int, Memory] = {}
        self.returned: Counter[fx.Node] = Counter()  # by how many places of the output
        self.views = {node for node in graph.nodes if is_view(node)}
        self.whole = _reads_whole(graph)
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
            for tensor in written_tensors(node, value_of):
                self.memory(tensor).writes.append(
                    Write(self.position[node], node, Region.of(tensor))
                )
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
        for operand, is_scatter, weak in contents_read(node):
            whole = node in self.whole and operand is node.all_input_nodes[0]
            yield operand, Read(at, node, is_scatter and not whole, weak and not whole, whole)

    # Questions. -----------------------------------------------------------------------------------

    def later_reads(
        self, tensor: torch.Tensor, region: Region, after: int
    ) -> Iterator[tuple[fx.Node, Read]]:
        """Who reads bytes of a region after a position, and sees what it holds at that position."""
        memory = self.memory(tensor)
        for value, reads in list(memory.values.items()):
            live = [each for each in reads if each.at > after]
            if live:
                memory.values[value] = live
            else:
                del memory.values[value]
            touched = live and any(
                overlap(Region.of(t), region) for t in tensors_in(value.meta["val"])
            )
            for read in live:
                if touched or read.whole:
                    if read.is_scatter and contains(Region.of(stored_over(read.by)), region):
                        continue  # asked now, since its base may have moved
                    if not self.overwritten(memory, region, after, read.at):
                        yield value, read

    def overwritten(self, memory: Memory, region: Region, after: int, before: int) -> bool:
        """True if the graph stores over all of a region between two positions."""
        return any(
            after < each.at < before and contains(each.region, region) for each in memory.writes
        )

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

    # Changes. -------------------------------------------------------------------------------------

    def replace(self, node: fx.Node, by: fx.Node, value: Any) -> None:
        """Let all users of a node, whose value was `value`, use another one.

        Their metadata follows.
        """
        users = list(node.users)
        node.replace_all_uses_with(by)
        self._hand_on(node, value, by)
        if node in self.returned:
            self.returned[by] += self.returned.pop(node)
        self.follow(users)

    def follow(self, users: list[fx.Node]) -> None:
        """Make the metadata of nodes true whose operands lie elsewhere now, and of all views of them."""
        while users:
            user = users.pop()
            if user.op == "output":
                continue
            if user in self.views or user.target in COPIES_STORAGE:
                old = user.meta["val"]
                if alike(old, set_value(user, self.mode), user):
                    user.meta["val"] = old
                    continue
                self._hand_on(user, old, user)
                users.extend(user.users)
            elif user.target in EPILOGUE:
                set_value(user, self.mode)
            else:
                user.meta["val_of"] = operands_noted(user)

    def _hand_on(self, node: fx.Node, value: Any, to: fx.Node) -> None:
        """The reads of a node, whose value was `value`, are reads of another one now, or of the same in other memory."""
        reads: list[Read] = []
        for tensor in tensors_in(value):
            reads = self.memory(tensor).values.pop(node, reads)
        for read in reads:
            self._add(to, read)


def _reads_whole(graph: fx.Graph) -> set[fx.Node]:
    """What reads more of a storage than its first operand shows.

    `as_strided_copy` does, and copies and scatters of whose own storage more is looked at, by
    `as_strided`, than they show.
    """
    copies: dict[int, fx.Node] = {}
    seen: dict[int, list[torch.Tensor]] = {}
    whole: set[fx.Node] = set()
    for node in graph.nodes:
        if node.target in COPIES_STORAGE:
            copies[storage_of(node.meta["val"])] = node
        elif goes_by_place(node.target):
            args, kwargs = on_values((node.args, node.kwargs), value_of)
            shown = aten.as_strided.default(*args, **kwargs)
            seen.setdefault(storage_of(shown), []).append(shown)
            whole.add(node)
    copied: set[int] = set()
    for number, node in reversed(copies.items()):
        region = Region.of(node.meta["val"])
        if number in copied or any(
            not contains(region, Region.of(each)) for each in seen.get(number, ())
        ):
            whole.add(node)
            copied.add(storage_of(node.all_input_nodes[0].meta["val"]))
    return whole


def contents_read(node: fx.Node) -> Iterator[tuple[fx.Node, bool, bool]]:
    """The operands that a node reads; for each, whether a scatter reads it as its base, and whether the read is weak."""
    op = node.target
    if not isinstance(op, OpOverload):
        for operand in node.all_input_nodes:
            yield operand, False, False
        return
    given = bind(op, node.args, node.kwargs)
    for name, value in given.items():
        if name in unread(op) or name in facts(op).outs:
            continue
        is_first = name == facts(op).names[0]
        for operand in nodes_in(value):
            yield operand, is_first and op in SCATTERS, is_first and overwrites(op)


def stored_over(scatter: fx.Node) -> torch.Tensor:
    """The part of its base that a scatter stores over."""
    view, args = stores_through(scatter)
    shown: torch.Tensor = view(*on_values(args, value_of))
    return shown
