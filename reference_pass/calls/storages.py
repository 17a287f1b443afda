"""Tensors and their storages: which storage a tensor is on, and how it sees it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from aliasproof.reference_pass.calls.nested import on_values, tensors_in
from aliasproof.reference_pass.calls.operator_forms import bind, facts, writes
from aliasproof.reference_pass.calls.regions import Region, Size, equal, known


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """How a tensor sees its storage: layout, dtype, and the lazy conjugate and negative bits.

    `sizes`, `strides` and `offset` count elements. `detached` says that the tensor was detached, if
    that matters. Two geometries with the same `key` show the same data in the same way. The key has
    all strides, also those of dimensions of size one: a view as another dtype depends on them.
    """

    storage: int
    dtype: torch.dtype
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size
    conj: bool
    neg: bool
    detached: bool = False
    region: Region = field(init=False)
    key: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        region = Region.of_layout(self.sizes, self.strides, self.offset, self.dtype.itemsize)
        layout = map(_comparable, (*self.sizes, *self.strides, self.offset))
        key = (self.storage, self.dtype, self.conj, self.neg, self.detached, *layout)
        object.__setattr__(self, "region", region)
        object.__setattr__(self, "key", key)

    @property
    def plain(self) -> Geometry:
        """The same elements seen without the lazy conjugate and negative bits."""
        return replace(self, conj=False, neg=False) if self.conj or self.neg else self

    def same(self, other: Geometry) -> bool:
        """True if both are known to show the same data in the same way."""
        return self.key == other.key


class Storages:
    """Numbers the storages of fake tensors in order of their first use, and keeps them alive."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self.by_number: list[torch.UntypedStorage] = []

    def number(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage."""
        storage = tensor.untyped_storage()
        # `_cdata` is an address. A storage that is kept alive cannot share it with a later one.
        if storage._cdata not in self._numbers:
            self._numbers[storage._cdata] = len(self.by_number)
            self.by_number.append(storage)
        return self._numbers[storage._cdata]

    def __len__(self) -> int:
        return len(self.by_number)

    def geometry(self, tensor: torch.Tensor, detached: bool = False) -> Geometry:
        """The geometry that a tensor has now."""
        dtype, conj, neg = encoding(tensor)
        layout = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
        return Geometry(self.number(tensor), dtype, *layout, conj, neg, detached)


def _comparable(size: Size) -> object:
    """A size in a form that can be compared and hashed."""
    # Comparing two symbols would add a guard, and the graph would be right for fewer sizes.
    return size if isinstance(size, int) else str(size)


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's storage."""
    return int(tensor.untyped_storage()._cdata)


def value_of(node: fx.Node) -> Any:
    """The noted value of a node."""
    return node.meta["val"]


def operand_storages(node: fx.Node, value: Callable[[fx.Node], Any] = value_of) -> set[int]:
    """The storages of a node's operands; for a `getitem`, only those of the item."""
    # A list may have hundreds of tensors, each with a `getitem` of its own.
    operands = [node] if node.target is operator.getitem else node.all_input_nodes
    return {storage_of(tensor) for operand in operands for tensor in tensors_in(value(operand))}


def encoding(tensor: torch.Tensor) -> tuple[torch.dtype, bool, bool]:
    """How a tensor reads the bytes of an element: dtype, lazy conjugate bit, lazy negative bit."""
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()


def same_location(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors are known to have the same offset, in storages of the same size."""
    return known(one.storage_offset() == other.storage_offset()) and known(
        one.untyped_storage().nbytes() == other.untyped_storage().nbytes()
    )


def same_view(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors are known to be the same view of one storage.

    They have the same elements at the same bytes, and read them in the same way.
    """
    alike = encoding(one) == encoding(other) and storage_of(one) == storage_of(other)
    return alike and Region.of(one).same(Region.of(other))


def same_elements(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors of one storage have the same elements in the same order."""
    # `same_view` ignores dimensions of size one, but a kernel iterates over them. The dtype may
    # differ: each element is written where it is read.
    same = equal(tuple(one.shape), tuple(other.shape)) and equal(one.stride(), other.stride())
    alike = same and encoding(one)[1:] == encoding(other)[1:]
    return alike and Region.of(one).same(Region.of(other))


def written_tensors(node: fx.Node, value: Callable[[fx.Node], Any]) -> list[torch.Tensor]:
    """The tensors that a node writes to, by its schema."""
    if not writes(node.target):
        return []
    given = bind(node.target, node.args, node.kwargs)
    # A written argument may be a list (`_foreach_add_`), or absent (an optional running mean).
    written = [given.get(name) for name in facts(node.target).writes]
    return tensors_in(on_values(written, value))
