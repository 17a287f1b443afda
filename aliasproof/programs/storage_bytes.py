"""The bytes of a storage, and arrays that have one entry per byte of a storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

Entry = TypeVar("Entry", bound=np.generic)


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """The bytes of a storage: a 1-d `uint8` tensor on its device, which shares the storage."""
    view: torch.Tensor = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return view


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
