"""Live ranges: which node reads which bytes, and until when.

Time is the position of a node in the graph. A node *reads* a value if its result depends on the
data of the value. Making a view, asking for a size, and overwriting are not reads, but the users of
the view read. A scatter reads its base except what it stores over. An output is read at the end.
The caller reads each input after that, unless the graph has overwritten it.

The first chapter scans all later nodes for each candidate (`no_later_use`), and never writes to an
input (`not_an_input`). That is quadratic, and wasteful, because the epilogue may overwrite an input
that nothing reads before. So all queries are by storage, and each storage lists its live values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from aliasproof.reference_pass.calls.metadata import can_keep, dependencies, set_value
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operand_reads import contents_read, stored_over
from aliasproof.reference_pass.calls.operator_forms import EPILOGUE, aten, writes
from aliasproof.reference_pass.calls.regions import Region, contains, overlap
from aliasproof.reference_pass.calls.storages import (
    operand_storages,
    storage_of,
    value_of,
    written_tensors,
)
from aliasproof.reference_pass.semantics import NAIVE, Semantics, never

END = 1 << 62  # the position of the caller, after all nodes


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a value at a position, by a node.

    It reads all bytes of the value. A scatter (`is_scatter`) does not read those that it stores
    over. A read that only `overwrites` needs the memory, not the data: the node would overwrite the
    value. A read of the `whole` storage also reads the bytes around the value.
    """

    at: int
    by: fx.Node
    is_scatter: bool = False
    overwrites: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that a `copy_` of the epilogue overwrites. Writes made by reinplacing are left out."""

    at: int
    by: fx.Node
    region: Region


@dataclass(slots=True)
class Memory:
    """One storage: the live values on it, the known writes to it, and whether it is an input."""

    values: dict[fx.Node, list[Read]] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    is_input: bool = False


def is_view(node: fx.Node) -> bool:
    """True if all results of a node are memory of its operands, and it writes nothing."""
    if node.op != "call_function" or writes(node.target):
        return False
    storages = {storage_of(tensor) for tensor in tensors_in(node.meta["val"])}
    return bool(storages) and storages <= operand_storages(node)


class Liveness:
    """The live ranges of a graph with true metadata.

    A rewrite that replaces operands calls `replace` or `follow`, which keep the live ranges and the
    metadata true.
    """

    def __init__(self, graph: fx.Graph, semantics: Semantics = NAIVE) -> None:
        self.semantics = semantics
        self.position = {node: index for index, node in enumerate(graph.nodes)}
        self.epilogue = min(
            (at for node, at in self.position.items() if node.target in EPILOGUE), default=END
        )
        self.memories: dict[int, Memory] = {}
        self.returned: Counter[fx.Node] = Counter()  # how often the output names each node
        # Computed once: a rewrite keeps views views, and adds its new ones here.
        self.views = {node for node in graph.nodes if is_view(node)}
        self.whole = set(semantics.reads_whole(graph))
        for node in graph.nodes:
            NOTES[node.op](self, node)

    def memory(self, tensor: torch.Tensor) -> Memory:
        """The memory of a tensor's storage."""
        # A rewrite may put values on a storage that no node was on before.
        return self.memories.setdefault(storage_of(tensor), Memory())

    def add(self, value: fx.Node, read: Read) -> None:
        """Note a read of a value, on each storage that the value is on."""
        for tensor in tensors_in(value.meta["val"]):
            self.memory(tensor).values.setdefault(value, []).append(read)

    # Queries. -------------------------------------------------------------------------------------

    def later_reads(
        self, tensor: torch.Tensor, region: Region, after: int
    ) -> Iterator[tuple[fx.Node, Read]]:
        """The reads after a position that see the data of a region at that position.

        Each comes with the value that is read.
        """
        memory = self.memory(tensor)
        for value, reads in list(memory.values.items()):
            live = [read for read in reads if read.at > after]
            # The passes query ascending positions, so earlier reads are dropped.
            if live:
                memory.values[value] = live
            else:
                del memory.values[value]
            touched = live and any(
                overlap(Region.of(shown), region) for shown in tensors_in(value.meta["val"])
            )
            for read in live:
                if touched or read.whole:
                    # `stored_over` is computed only now: the base may have moved since the read was
                    # noted.
                    if read.is_scatter and contains(Region.of(stored_over(read.by)), region):
                        continue
                    if not self.overwritten(memory, region, after, read.at):
                        yield value, read

    def overwritten(self, memory: Memory, region: Region, after: int, before: int) -> bool:
        """True if one write overwrites all of a region between two positions."""
        # Two writes may cover it together. That is not checked: False is the safe answer.
        return any(
            after < write.at < before and contains(write.region, region) for write in memory.writes
        )

    def caller_reads(self, tensor: torch.Tensor, region: Region, after: int) -> bool:
        """True if the caller sees the data that a region of an input has at a position."""
        memory = self.memory(tensor)
        return memory.is_input and not self.overwritten(memory, region, after, END)

    def last_read(self, value: fx.Node) -> int:
        """The last position at which a value, or a view of it, is read."""
        # A read of a view is noted for the view, not for its base.
        reads = [
            read.at
            for view in self.with_views(value)
            for tensor in tensors_in(view.meta["val"])
            for read in self.memory(tensor).values.get(view, ())
        ]
        return max(reads, default=-1)

    def returned_in(self, tensor: torch.Tensor) -> list[fx.Node]:
        """The returned values on the storage of a tensor, each as often as it is returned."""
        # A returned value has a read at the end, so it is among the live values of its memory.
        return [
            node for node in self.memory(tensor).values for _ in range(self.returned.get(node, 0))
        ]

    def with_views(self, value: fx.Node, *, copies: bool = False) -> Iterator[fx.Node]:
        """A value, and all views of it; with `copies`, also all copies of its whole storage.

        If the value gets another offset, all of these do.
        """
        copies_whole = self.semantics.copies_whole_storage if copies else never
        pending = [value]
        while pending:
            yield (derived := pending.pop())
            pending.extend(
                user
                for user in derived.users
                if user in self.views or (copies_whole(user.target) and user.args[0] is derived)
            )

    # Changes. -------------------------------------------------------------------------------------

    def replace(self, node: fx.Node, by: fx.Node, value: Any) -> None:
        """Replace a node, whose value was `value`, by another in all users, and `follow` them."""
        self.replace_all([(node, by, value)])

    def replace_all(self, replacements: Iterable[tuple[fx.Node, fx.Node, Any]]) -> None:
        """`replace` for several nodes at once; a user of several of them is followed once."""
        users: dict[fx.Node, None] = {}
        for node, by, value in replacements:
            users |= dict.fromkeys(node.users)
            node.replace_all_uses_with(by)
            self._move_reads(node, value, by)
            # An output that was the node is now the other node.
            if node in self.returned:
                self.returned[by] += self.returned.pop(node)
        self.follow(list(users))

    def follow(self, users: list[fx.Node]) -> None:
        """Make the metadata of nodes with new operands true, and that of all their views."""
        while users:
            user = users.pop()
            if user.op == "output":  # its reads moved with `replace`; it has no value
                continue
            # Views and copies of a storage change with their operand, and so do their users.
            if user in self.views or self.semantics.copies_whole_storage(user.target):
                old = user.meta["val"]
                if can_keep(old, set_value(user, self.semantics), user):
                    user.meta["val"] = old
                    continue
                self._move_reads(user, old, user)
                users.extend(user.users)
            elif writes(user.target):  # its value is the tensor that it writes
                set_value(user, self.semantics)
            else:
                # It computes a new tensor, which has the same metadata as before: otherwise the
                # conditions would have refused the rewrite.
                user.meta["val_of"] = dependencies(user)

    def _move_reads(self, node: fx.Node, value: Any, to: fx.Node) -> None:
        """Move the reads of a node, whose value was `value`, to a node with another value.

        It may be the same node, if its value is on another storage now.
        """
        reads: list[Read] = []
        # A list of tensors has the same list of reads on each of its storages: one of them is kept.
        for tensor in tensors_in(value):
            reads = self.memory(tensor).values.pop(node, reads)
        for read in reads:
            self.add(to, read)


# --- what each kind of node does ------------------------------------------------------------------


def note_input(liveness: Liveness, node: fx.Node) -> None:
    """An input or a constant is on memory that the caller sees."""
    for tensor in tensors_in(node.meta["val"]):
        liveness.memory(tensor).is_input = True


def note_output(liveness: Liveness, node: fx.Node) -> None:
    """The caller reads the outputs."""
    liveness.returned.update(nodes_in(node.args))
    for operand in node.all_input_nodes:
        liveness.add(operand, Read(END, node))


def note_call(liveness: Liveness, node: fx.Node) -> None:
    """A call reads operands; a call of the epilogue writes inputs, too."""
    if node.target is aten.copy_.default:
        for tensor in written_tensors(node, value_of):
            write = Write(liveness.position[node], node, Region.of(tensor))
            liveness.memory(tensor).writes.append(write)
    elif node.target is aten.set_.source_Tensor:
        # After `set_` the caller sees the source through the input, as if it were returned.
        source = node.args[1]
        assert isinstance(source, fx.Node)
        liveness.returned[source] += 1
        liveness.add(source, Read(END, node))
    for operand, read in _reads_by(liveness, node):
        liveness.add(operand, read)
    for held in liveness.semantics.held(node):
        liveness.add(held, Read(END, node))


# By kind of node (`fx.Node.op`). A table, so that `faults` can plant a wrong entry.
NOTES: dict[str, Callable[[Liveness, fx.Node], None]] = {
    "placeholder": note_input,
    "get_attr": note_input,
    "call_function": note_call,
    "output": note_output,
}


def _reads_by(liveness: Liveness, node: fx.Node) -> Iterator[tuple[fx.Node, Read]]:
    """The reads of a call, each with the operand that is read."""
    at = liveness.position[node]
    if node in liveness.views:
        # A view does not read its operand, but it reads a number that says what it shows, such as
        # the start of `narrow`.
        shown = {storage_of(tensor) for tensor in tensors_in(node.meta["val"])}
        for operand, *_ in contents_read(node):
            if shown.isdisjoint(map(storage_of, tensors_in(operand.meta["val"]))):
                yield operand, Read(at, node)
        return
    for operand, is_scatter, overwritten in contents_read(node):
        whole = node in liveness.whole and operand is node.all_input_nodes[0]
        # A read of the whole storage also reads the bytes that a scatter stores over: no exception.
        yield operand, Read(at, node, is_scatter and not whole, overwritten and not whole, whole)
