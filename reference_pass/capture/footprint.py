"""What a graph allocates: how many tensors, and how many bytes at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.storages import operand_storages, storage_of, value_of
from aliasproof.reference_pass.regions import Size


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


def has_higher_peak(compiled: fx.GraphModule) -> bool:
    """True if the captured graph, which writes where the program does, needs less memory.

    The passes remove each mutation, and do not put all of them back: not through views of one
    input that lie between each other, for example. The captured graph is right as it is.
    """
    captured: Footprint = compiled.meta["captured_footprint"]
    return captured.peak < footprint(compiled.graph).peak
