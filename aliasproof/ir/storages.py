"""Storages: their bytes, sets of them by identity, and elements that are given as text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from aliasproof.ir.program import Storage

Entry = TypeVar("Entry", bound=np.generic)


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """The bytes of a storage: a 1-d `uint8` tensor on its device, which shares the storage."""
    view: torch.Tensor = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return view


def has_bytes(tensor: torch.Tensor) -> bool:
    """True if a tensor has its elements in a storage: it is dense, and no meta tensor."""
    dense = tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized
    return dense and tensor.device.type != "meta"


def entries_of(
    per_byte: npt.NDArray[Entry],
    sizes: Sequence[int],
    strides: Sequence[int],
    offset: int,
    itemsize: int,
) -> npt.NDArray[Entry]:
    """The entries for the bytes of a tensor, as a view of shape `(*sizes, itemsize)`.

    `per_byte` is 1-d and contiguous, with one entry per byte of the tensor's storage. `strides` and
    `offset` count elements of `itemsize` bytes, as torch does.

    Raises:
        ValueError: The tensor reaches beyond the end of `per_byte`.

    """
    shape = (*sizes, itemsize)
    if 0 in sizes:  # such a tensor may start anywhere, also beyond the end
        return np.empty(shape, per_byte.dtype)
    step = per_byte.itemsize * itemsize  # from one element to the next, in the array's memory
    in_memory = (*(stride * step for stride in strides), per_byte.itemsize)
    return np.ndarray(shape, per_byte.dtype, per_byte.data, offset * step, in_memory)


# --- storage set ----------------------------------------------------------------------------------


class StorageSet:
    """A set of storages, by identity."""

    def __init__(self) -> None:
        # A weak reference frees the data but keeps the identity, so that no later storage gets it.
        self._storages: dict[int, StorageWeakRef] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Add the storage of a tensor."""
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = StorageWeakRef(storage)

    def add_new(self, tensors: Sequence[torch.Tensor], known: Sequence[torch.Tensor]) -> None:
        """Add the storages of tensors that are not storages of known tensors."""
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


# --- storage values -------------------------------------------------------------------------------


Number: TypeAlias = "bool | int | float | complex"


def element_value(text: str, dtype: torch.dtype) -> Number:
    """The number that a text means in a dtype. Raises `ValueError` if it is not one."""
    if dtype == torch.bool:
        if text not in ("0", "1"):
            raise ValueError(f"a bool is 0 or 1, not {text}")
        return text == "1"
    if dtype.is_complex:
        return complex(text)
    if dtype.is_floating_point:
        return float(text)
    number, limits = int(text), torch.iinfo(dtype)
    if not limits.min <= number <= limits.max:
        raise ValueError(f"{dtype} has the range {limits.min} to {limits.max}")
    return number


def element_text(value: Number) -> str:
    """The text of an element, which `element_value` reads back."""
    if isinstance(value, bool):
        return str(int(value))
    # An integral value is written without a point, if that is short and keeps the sign of 0.
    if isinstance(value, float) and value.is_integer() and 0 < abs(value) < 2**53:
        return str(int(value))
    return str(value)


def explicit_values(storage: Storage) -> torch.Tensor:
    """The data of a storage with explicit values, which are repeated up to its length."""
    numbers = [element_value(text, storage.dtype) for text in storage.values]
    repeated = itertools.islice(itertools.cycle(numbers), storage.length)
    return torch.tensor(list(repeated), dtype=storage.dtype)


def texts_of(buffer: torch.Tensor) -> tuple[str, ...]:
    """The elements of a 1-d tensor as text, for `Storage.values`."""
    return tuple(map(element_text, buffer.tolist()))
