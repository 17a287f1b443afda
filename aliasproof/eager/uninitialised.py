"""Memory that was allocated and never written, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch

from aliasproof.ir.values import entries_of

ALLOCATES = {"empty", "empty_like", "empty_strided", "empty_permuted"}
ALLOCATES |= {"new_empty", "new_empty_strided"}
# Losses that leave their result uninitialised for empty inputs.
LOSSES = {"soft_margin_loss", "multi_margin_loss", "multilabel_margin_loss_forward"}
RESIZED_COPIES = {"resize", "resize_as"}  # functional forms: they clone, then call `resize_`


@dataclass(slots=True)
class UninitialisedStorage:
    """The bytes of one storage that no call has written yet.

    It keeps the storage alive, so that no later storage reuses its identity.
    """

    storage: torch.UntypedStorage
    initialised: int = 0  # bytes at the start that were written before
    mask: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.mask = np.ones(self.storage.nbytes(), np.bool_)
        self.mask[: self.initialised] = False

    def bytes_of(self, tensor: torch.Tensor) -> npt.NDArray[np.bool_]:
        """The part of the mask that the tensor covers, by element and (last dimension) byte."""
        self.fit()
        return entries_of(
            self.mask,
            tensor.shape,
            tensor.stride(),
            int(tensor.storage_offset()),
            tensor.element_size(),
        )

    def fit(self) -> None:
        """Give the mask the length of the storage: new bytes are unwritten."""
        grown = self.storage.nbytes() - self.mask.size
        if grown > 0:
            self.mask = np.concatenate((self.mask, np.ones(grown, np.bool_)))
        else:
            self.mask = self.mask[: self.storage.nbytes()]


class UninitialisedMemory:
    """The storages that have, or had, bytes that no call has written."""

    def __init__(self) -> None:
        self._storages: dict[int, UninitialisedStorage] = {}

    def __bool__(self) -> bool:
        return bool(self._storages)

    def note_allocation(self, tensor: torch.Tensor) -> None:
        """Note that the tensor has a new storage, which is not initialised."""
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = UninitialisedStorage(storage)

    def note_results(
        self, name: str, operands: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
    ) -> None:
        """Note the results that an operator of that name did not write completely."""
        if name in ALLOCATES:
            for tensor in results:
                self.note_allocation(tensor)
        if name in LOSSES and operands[0].numel() == 0:
            self.note_allocation(results[0])
        if name in RESIZED_COPIES:
            (copy,) = results
            self.note_resize(copy.untyped_storage(), operands[0].numel() * copy.itemsize)

    def note_resize(self, storage: torch.UntypedStorage, nbytes_before: int) -> None:
        """Note the bytes that `resize_` added to a storage of `nbytes_before` bytes."""
        if storage._cdata in self._storages:
            self._storages[storage._cdata].fit()
        elif storage.nbytes() > nbytes_before:
            self._storages[storage._cdata] = UninitialisedStorage(storage, nbytes_before)

    @contextmanager
    def noting_storages(self) -> Iterator[None]:
        """Note `resize_` of a storage, which is not a call of an operator."""
        right = torch.UntypedStorage.resize_

        def noting(storage: torch.UntypedStorage, *size: Any) -> Any:
            before = storage.nbytes()
            result = right(storage, *size)
            self.note_resize(storage, before)
            return result

        with mock.patch.object(torch.UntypedStorage, "resize_", noting):
            yield

    def note_write(self, tensor: torch.Tensor, elements: torch.Tensor | None = None) -> None:
        """Note a write of all elements of a tensor, or of those where `elements` is true."""
        state = self._storages.get(tensor.untyped_storage()._cdata)
        if state is None:
            return
        if elements is not None:
            state.bytes_of(tensor)[elements.numpy(force=True)] = False
        # Most storages are written as a whole. Without an entry, the storage can be freed.
        elif tensor.is_contiguous() and tensor.nbytes == state.storage.nbytes():
            del self._storages[state.storage._cdata]
        else:
            state.bytes_of(tensor)[...] = False

    def shown_by(self, tensor: torch.Tensor) -> bool:
        """True if the tensor covers a byte that no call has written."""
        state = self._storages.get(tensor.untyped_storage()._cdata)
        return state is not None and bool(state.bytes_of(tensor).any())
