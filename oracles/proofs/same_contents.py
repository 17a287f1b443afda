"""Which bytes of the values of a functional graph are equal: those of copies, and of parts.

Nothing is written in a functional graph, so bytes that are equal once stay so. The part of a
concatenation is equal to the bytes that it is copied to, and the base of a scatter to those of the
result that the scatter does not store over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import fx

from aliasproof.ir.regions import Region
from aliasproof.oracles.forms import SCATTERS
from aliasproof.oracles.proofs.graph_memory import GraphMemory, bytes_of, located

aten = torch.ops.aten

Bytes: TypeAlias = npt.NDArray[np.int64]  # numbers of bytes, counted through all storages


class SameContents:
    """Classes of equal bytes: `classes` has the class of each byte, by the number of the byte."""

    def __init__(self, memory: GraphMemory) -> None:
        self.starts: dict[int, int] = {}
        count = 0
        for storage, use in memory.memories.items():
            self.starts[storage] = count
            count += use.nbytes
        self.classes: Bytes = np.arange(count, dtype=np.int64)
        self._pairs: list[tuple[Bytes, Bytes]] = []

    def numbers(self, storage: int, nbytes: int) -> Bytes:
        """The numbers of the bytes of a storage."""
        start = self.starts[storage]
        return np.arange(start, start + nbytes, dtype=np.int64)

    def of_region(self, storage: int, nbytes: int, region: Region) -> Bytes:
        """The numbers of the bytes of a region, element by element."""
        return bytes_of(self.numbers(storage, nbytes), region).reshape(-1)

    def unite(self, one: Bytes, other: Bytes) -> None:
        """The bytes with these numbers are equal, pair by pair."""
        self._pairs.append((one, other))

    def close(self) -> None:
        """Make classes of all pairs."""
        changed = True
        while changed:
            before = self.classes.copy()
            for one, other in self._pairs:
                least = np.minimum(self.classes[one], self.classes[other])
                np.minimum.at(self.classes, one, least)
                np.minimum.at(self.classes, other, least)
            changed = bool((before != self.classes).any())


def copied_parts(node: fx.Node) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What a join or a scatter copies, each with the part of the result that it is copied to."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    given: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
    result = node.meta["val"]
    if node.target is aten.cat.default:
        yield from _of_cat(result, given["tensors"], given.get("dim", 0))
    elif node.target is aten.stack.default:
        for index, part in enumerate(given["tensors"]):
            yield part, result.select(given.get("dim", 0), index)
    elif node.target is aten.constant_pad_nd.default:
        pads = given["pad"]
        if all(pad >= 0 for pad in pads):
            for dim, before in enumerate(pads[::2], 1):  # from the last dimension
                result = result.narrow(-dim, before, given["self"].shape[-dim])
            yield given["self"], result
    else:
        source = given.pop("src")
        del given["self"]
        yield source, SCATTERS[node.target](result, **given)  # type: ignore[index]


def _of_cat(
    result: torch.Tensor, tensors: list[torch.Tensor], dim: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    start = 0
    for part in tensors:
        if part.dim() == result.dim():  # not an empty one of one dimension
            yield part, result.narrow(dim, start, part.shape[dim])
            start += part.shape[dim]


def is_at(part: torch.Tensor, shown: torch.Tensor) -> bool:
    """True if a part can be the bytes that it is copied to: nothing is converted."""
    one, other = located(part), located(shown)
    return (one.dtype, one.conj, one.neg) == (other.dtype, other.conj, other.neg) and tuple(
        part.shape
    ) == tuple(shown.shape)
