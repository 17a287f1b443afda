"""Memory that was allocated and never written, byte by byte."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(slots=True)
class UninitialisedStorage:
    """The bytes of one storage that no call has written yet.

    It keeps the storage alive, so that no later storage reuses its identity.
    """

    storage: torch.UntypedStorage
    initialised: int = 0  # bytes at the start that were written before
    mask: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.mask = torch.arange(self.storage.nbytes()) >= self.initialised

    def bytes_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The part of the mask that the tensor covers, by element and (last dimension) byte."""
        self.extend()
        # The mask has one element per byte, so strides and offset are in bytes.
        size = tensor.element_size()
        strides = [stride * size for stride in tensor.stride()]
        return self.mask.as_strided(
            (*tensor.shape, size), (*strides, 1), tensor.storage_offset() * size
        )

    def extend(self) -> None:
        """Lengthen the mask if the storage has grown: nothing has written the new bytes."""
        grown = self.storage.nbytes() - self.mask.numel()
        if grown > 0:
            self.mask = torch.cat((self.mask, torch.ones(grown, dtype=torch.bool)))


class UninitialisedMemory:
    """The storages that have, or had, bytes that no call has written."""

    def __init__(self) -> None:
        self._storages: dict[int, UninitialisedStorage] = {}

    def __bool__(self) -> bool:
        return bool(self._storages)

    def note_allocation(self, tensor: torch.Tensor) -> None:
        """The tensor has a new storage, which is not initialised."""
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = UninitialisedStorage(storage)

    def note_resize(self, storage: torch.UntypedStorage, nbytes_before: int) -> None:
        """The storage had `nbytes_before` bytes until `resize_` made it longer."""
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = UninitialisedStorage(storage, nbytes_before)
        self._storages[storage._cdata].extend()

    def note_write(self, tensor: torch.Tensor) -> None:
        """All elements of the tensor were written."""
        state = self._storages.get(tensor.untyped_storage()._cdata)
        if state is not None:
            state.bytes_of(tensor).fill_(False)

    def shown_by(self, tensor: torch.Tensor) -> bool:
        """True if the tensor covers a byte that no call has written."""
        state = self._storages.get(tensor.untyped_storage()._cdata)
        return state is not None and bool(state.bytes_of(tensor).any())
