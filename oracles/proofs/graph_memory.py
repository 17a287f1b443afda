"""The storages of a functional graph over time: which bytes are read until when.

Everything is read off the metadata of the nodes (`node.meta["val"]`) and off schemas. Time is the
position of a node. Nodes without a use do not count.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.regions import Region
from aliasproof.ir.schemas import Kind, facts
from aliasproof.oracles.forms import SCATTERS
from aliasproof.oracles.stage_run import (
    Location,
    NodeCall,
    function_call,
    location_of,
    operator_call,
)

aten = torch.ops.aten

Times: TypeAlias = npt.NDArray[np.int64]
NEVER = -1


@dataclass(slots=True)
class StorageUse:
    """One storage: which bytes are read until when, and when they are overwritten at the end.

    `source` is the node that allocates it; None for an input or a constant. `needed` are the bytes
    of the tensor that it makes. It is `shown` if an operator of another library gets it.
    """

    nbytes: int
    source: fx.Node | None
    born: int
    dies: int
    needed: npt.NDArray[np.bool_] = field(init=False)
    last_read: Times = field(init=False)
    written: Times = field(init=False)
    returned: bool = False
    shown: bool = False

    def __post_init__(self) -> None:
        self.needed = np.zeros(self.nbytes, np.bool_)
        self.last_read = np.full(self.nbytes, NEVER, np.int64)
        # Of its own only if it is an input.
        self.written = np.full(self.nbytes if self.source is None else 0, NEVER, np.int64)


class GraphMemory:
    """The storages of a graph, its calls, and the copies of its epilogue.

    Raises `ValueError` for symbolic sizes.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.position = {node: at for at, node in enumerate(graph.nodes)}
        # Calls that need not run, since nobody reads what they compute. They read nothing, so
        # others may be so, too.
        self.unread: set[fx.Node] = set()
        while found := self._unread(graph):
            self.unread |= found

    def _unread(self, graph: fx.Graph) -> set[fx.Node]:
        """Note all uses, except reads by calls that need not run; returns more of these calls."""
        self.memories: dict[int, StorageUse] = {}
        self.calls: dict[fx.Node, NodeCall] = {}
        self.copied: list[tuple[int, int, int]] = []  # (source, destination, time), as storages
        needed = _needed_nodes(graph, self.unread)
        for node in graph.nodes:
            if node in needed:
                self._note(node)
        return {
            node
            for node in self.calls.keys() - self.unread
            if not _has_effect(node) and self._is_unread(node)
        }

    def _is_unread(self, node: fx.Node) -> bool:
        """True if a call allocates all its results, and nobody reads a byte of them."""
        results = list(tensors_in(node.meta["val"]))
        uses = [self.of(result) for result in results]
        return bool(results) and all(
            use.source is node and not use.shown and (use.last_read == NEVER).all() for use in uses
        )

    def _note(self, node: fx.Node) -> None:
        at = self.position[node]
        operands = [node] if node.target is operator.getitem else node.all_input_nodes
        operands = [] if node in self.unread else operands
        used = [tensor for operand in operands for tensor in tensors_in(operand.meta.get("val"))]
        for tensor in used:
            self.of(tensor).dies = at
        if node.op == "output":
            for tensor in used:
                self._read(located(tensor), at)
                self.of(tensor).returned = True
        elif _is_call(node) and node not in self.unread:
            self._note_call(node, at)
        for tensor in tensors_in(node.meta.get("val")):
            if storage_of(tensor) not in self.memories:
                source = node if node.op == "call_function" else None
                memory = StorageUse(_fixed(tensor.untyped_storage().nbytes()), source, at, at)
                bytes_of(memory.needed, located(tensor).region)[...] = True
                self.memories[storage_of(tensor)] = memory

    def _note_call(self, node: fx.Node, at: int) -> None:
        call = self.calls[node] = _call_of(node)
        results = [storage_of(tensor) for tensor in tensors_in(node.meta["val"])]
        own = {operand.location.storage for operand in call.operands}
        is_view = isinstance(node.target, OpOverload) and (
            facts(node.target).kind is Kind.VIEW
            or (bool(results) and own.issuperset(results) and not call.mutates)
        )
        for operand in () if is_view else call.read:
            kept = stored_over(node) if node.target in SCATTERS and not operand.position else None
            self._read(operand.location, at, kept)
        for operand in call.operands if _sees_layouts(call) else ():
            self.memories[operand.location.storage].shown = True
        if node.target is aten.set_.source_Tensor:
            self.memories[call.operands[1].location.storage].returned = True
        elif node.target is aten.copy_.default:
            destination, source = call.operands[0].location, call.operands[1].location
            memory = self.memories[destination.storage]
            first = bytes_of(memory.written, destination.region)
            first[first == NEVER] = at
            self.copied.append((source.storage, destination.storage, at))

    def _read(self, location: Location, at: int, kept: Region | None = None) -> None:
        """Note a read; the bytes of `kept` are not read."""
        memory = self.memories[location.storage]
        old = None if kept is None else bytes_of(memory.last_read, kept).copy()
        read = bytes_of(memory.last_read, location.region)
        # What is read after the epilogue has written it is another value.
        if memory.source is None:
            read[bytes_of(memory.written, location.region) == NEVER] = at
        else:
            read[...] = at
        if kept is not None:
            bytes_of(memory.last_read, kept)[...] = old

    def of(self, tensor: torch.Tensor) -> StorageUse:
        """The storage of a tensor."""
        return self.memories[storage_of(tensor)]

    def last_reads(self, region: Region, storage: int) -> Times:
        """When the bytes of a region are read for the last time."""
        return bytes_of(self.memories[storage].last_read, region)


# --- nodes ----------------------------------------------------------------------------------------


def _needed_nodes(graph: fx.Graph, unread: set[fx.Node]) -> set[fx.Node]:
    """The nodes that matter: for an output, for what they write or draw, or as an effect."""
    needed: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        used = any(user in needed and user not in unread for user in node.users)
        if node.op == "output" or _has_effect(node) or used:
            needed.add(node)
    return needed


def _is_call(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem


def _has_effect(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if not isinstance(node.target, OpOverload):
        return True
    known = facts(node.target)
    return bool(known.writes) or known.random or not node.target._schema.returns


def _call_of(node: fx.Node) -> NodeCall:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    if isinstance(node.target, OpOverload):
        return operator_call(node.target, node.target, args, kwargs, located)
    return function_call(args, kwargs, located)


def _sees_layouts(call: NodeCall) -> bool:
    """True if what a call computes may depend on all that can be seen of its operands."""
    op = call.computes
    return (
        op is not None and op.namespace not in ("aten", "prims") and "layouts" not in call.arguments
    )


def stored_over(scatter: fx.Node) -> Region:
    """The part of its base that a scatter stores over."""
    args, kwargs = fx.node.map_arg(
        (scatter.args, scatter.kwargs), lambda operand: operand.meta["val"]
    )
    names = [argument.name for argument in scatter.target._schema.arguments]  # type: ignore[union-attr]
    given = dict(zip(names, args, strict=False)) | kwargs
    base = given.pop("self")
    del given["src"]
    return located(SCATTERS[scatter.target](base, **given)).region  # type: ignore[index]


def located(tensor: torch.Tensor) -> Location:
    """Where a tensor is. Raises `ValueError` for a symbolic size."""
    for size in (*tensor.shape, *tensor.stride(), tensor.storage_offset()):
        _fixed(size)  # raises for a symbol
    return location_of(tensor, storage_of(tensor))


def storage_of(tensor: torch.Tensor) -> int:
    """The number of the storage of a tensor."""
    return int(tensor.untyped_storage()._cdata)


def _fixed(size: Any) -> int:
    if isinstance(size, int):
        return size
    raise ValueError("the smallest peak is for fixed sizes; this graph has symbolic ones")


def bytes_of(of: npt.NDArray[Any], region: Region) -> npt.NDArray[Any]:
    """The entries of the bytes of a region, as a view that can be written."""
    shape, strides = (*region.sizes, region.itemsize), (*region.strides, 1)
    if 0 in shape or not len(of):
        return np.empty(0, of.dtype)
    steps = [stride * of.itemsize for stride in strides]
    return np.ndarray(shape, of.dtype, of.data, region.start * of.itemsize, steps)
