"""Storages in time: which storage a graph allocates, how large it is, and how long it is live.

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
from aliasproof.reference_pass.calls.storages import operand_storages, storage_of, value_of
from aliasproof.reference_pass.regions import Size


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The life of one storage that a graph allocates.

    The call `node` allocates its `nbytes` bytes at position `born`. `dies` is the position of its
    last use, and that of the output node if it is returned. A symbolic size counts as its hint, or
    as zero.
    """

    node: fx.Node
    nbytes: int
    born: int
    dies: int
    returned: bool


def lifetimes(
    graph: fx.Graph, value: Callable[[fx.Node], Any] = value_of, made_by: str = "call_function"
) -> dict[int, Lifetime]:
    """The storages that a graph allocates, by their identity, in order of allocation.

    Inputs are not among them: they are there before and after. With `made_by="placeholder"`, it is
    inputs alone. `value` gives the value of a node; by default, its metadata.
    """
    made: dict[int, tuple[fx.Node, int, int]] = {}
    dies: dict[int, int] = {}
    returned = operand_storages(graph.output_node(), value)
    for at, node in enumerate(graph.nodes):
        taken = operand_storages(node, value)
        # Overwritten by each later use, so the last one stays.
        dies |= dict.fromkeys(taken, at)
        if node.op != made_by:
            continue
        for tensor in tensors_in(value(node)):
            storage = storage_of(tensor)
            if storage not in taken:
                made[storage] = node, _fixed(tensor.untyped_storage().nbytes()), at
                # A storage that is never an operand dies where it is born.
                dies[storage] = at
    return {
        storage: Lifetime(node, nbytes, at, dies[storage], storage in returned)
        for storage, (node, nbytes, at) in made.items()
    }


def _fixed(size: Size) -> int:
    return size if isinstance(size, int) else size.node.hint or 0


def live_bytes(lives: Sequence[Lifetime], length: int) -> list[int]:
    """The number of bytes that are live at each of `length` positions."""
    changes = [0] * (length + 1)
    for life in lives:
        changes[life.born] += life.nbytes
        changes[life.dies + 1] -= life.nbytes
    return list(itertools.accumulate(changes))[:length]


def free_bytes(graph: fx.Graph, lives: Sequence[Lifetime]) -> list[int]:
    """The bytes at each position that could be live, too, without a higher peak.

    The caller keeps the inputs, or drops them, as autograd does with what it saved for a backward
    graph. Neither peak may rise.
    """
    inputs = lifetimes(graph, made_by="placeholder").values()
    kept, dropped = (live_bytes(all_, len(graph.nodes)) for all_ in (lives, [*lives, *inputs]))
    peak, other = max(kept, default=0), max(dropped, default=0)
    return [min(peak - one, other - two) for one, two in zip(kept, dropped, strict=True)]


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
        """The timeline of a graph that was made of a functional one."""
        position = {node.name: at for at, node in enumerate(functional.nodes)}
        times: list[int] = []
        now = 0
        for node in reinplaced.nodes:
            # A view that reinplacing has added is made when the call before it has run.
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
