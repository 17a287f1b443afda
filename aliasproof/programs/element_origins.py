"""`ElementOrigins`: which tensors have nothing but elements of another one, as `x.amax()` has of x.

Where such a tensor is compared with the other one, an element meets itself. Its last bits depend on
the kernel that computed it, but all kernels find that it equals itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch.multiprocessing.reductions import StorageWeakRef

# Each element that these return is one of their floating-point operand.
_PICKING = (
    "_to_copy _unsafe_view alias amax amin aminmax clone cummax cummin detach flip gather index"
    " index_select kthvalue lift_fresh max median min mode msort nanmedian repeat roll sort take"
    " topk view_copy"
)
PICKS = frozenset(_PICKING.split())
# A storage by identity, and how often it was written before.
_Contents: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class ElementOrigins:
    """From which contents of storages the data come, followed from call to call."""

    _writes: dict[int, int] = field(default_factory=dict)
    _origins: dict[int, frozenset[_Contents]] = field(default_factory=dict)
    # A weak reference keeps the identity of a storage, so that no later one has it.
    _known: dict[int, StorageWeakRef] = field(default_factory=dict)

    def note(self, name: str, read: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> None:
        """Follow one call that is no view: `made` are the tensors that it wrote or returned."""
        there = {_storage(tensor) for tensor in read}
        numbers = [tensor for tensor in read if tensor.is_floating_point()]
        source = numbers[0] if name in PICKS and len(numbers) == 1 else None
        for tensor in made:
            key = _storage(tensor)
            if key in there:
                self._writes[key] = self._writes.get(key, 0) + 1
                self._origins.pop(key, None)
            elif source is not None and tensor.dtype == source.dtype:
                self._known[key] = StorageWeakRef(tensor.untyped_storage())
                self._origins[key] = self._origins_of(source) | {self._contents(source)}

    def whole(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor | None:
        """All elements of a storage that has one of the tensors, and from which the other comes.

        None if neither comes from the other one.
        """
        if one.dtype != other.dtype or not one.is_floating_point() or one.is_meta:
            return None
        for base, part in ((one, other), (other, one)):
            if self._contents(base) in self._origins_of(part) | {self._contents(part)}:
                return _elements(base)
        return None

    def _origins_of(self, tensor: torch.Tensor) -> frozenset[_Contents]:
        return self._origins.get(_storage(tensor), frozenset())

    def _contents(self, tensor: torch.Tensor) -> _Contents:
        key = _storage(tensor)
        self._known.setdefault(key, StorageWeakRef(tensor.untyped_storage()))
        return key, self._writes.get(key, 0)


def _storage(tensor: torch.Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    return tensor.detach().as_strided((count,), (1,), 0)
