"""`StorageSet`: storages by identity, which do not keep their data alive."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.multiprocessing.reductions import StorageWeakRef


class StorageSet:
    """A set of storages, by identity."""

    def __init__(self) -> None:
        # A weak reference frees the data and keeps the identity, so that no later storage has it.
        self._storages: dict[int, StorageWeakRef] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Add the storage of a tensor."""
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = StorageWeakRef(storage)

    def add_new(self, tensors: Sequence[torch.Tensor], known: Sequence[torch.Tensor]) -> None:
        """Add the storages of tensors that no known tensor has."""
        others = {tensor.untyped_storage()._cdata for tensor in known}
        for tensor in tensors:
            if tensor.untyped_storage()._cdata not in others:
                self.add(tensor)

    def __bool__(self) -> bool:
        """True if there is a storage in the set."""
        return bool(self._storages)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """True if the storage of the tensor is in the set."""
        return bool(self._storages) and tensor.untyped_storage()._cdata in self._storages

    def any(self, tensors: Sequence[torch.Tensor]) -> bool:
        """True if the storage of one of the tensors is in the set."""
        return bool(self._storages) and any(tensor in self for tensor in tensors)
