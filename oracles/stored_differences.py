"""Differences in the storages of inputs, told as users know them: by an input and an element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from aliasproof.ir.regions import reach
from aliasproof.ir.storages import entries_of
from aliasproof.oracles.value_hashes import Array


@dataclass(frozen=True, slots=True)
class InputView:
    """The layout of an input as it was passed, in the storage with that index."""

    number: int
    storage: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    itemsize: int

    def elements(self, hashes: Array) -> Array:
        """The hashes of its elements, with a last dim for the bytes of an element."""
        return entries_of(hashes, self.sizes, self.strides, self.offset, self.itemsize)

    @property
    def ends(self) -> tuple[int, int]:
        """The first byte that it covers, and the byte after the last one."""
        start = self.offset * self.itemsize
        return start, start + reach(self.sizes, self.strides) * self.itemsize


def input_views(inputs: Sequence[torch.Tensor]) -> tuple[InputView, ...]:
    """The layouts of the inputs. Storages are numbered in the order of the inputs."""
    order: dict[int, int] = {}
    views = []
    for number, tensor in enumerate(inputs):
        storage = order.setdefault(tensor.untyped_storage()._cdata, len(order))
        layout = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
        views.append(InputView(number, storage, *layout, tensor.element_size()))
    return tuple(views)


@dataclass(frozen=True, slots=True)
class StoredDifference:
    """Where a storage differs: an input with the hashes of its elements, or bytes around inputs.

    For bytes that no input covers, `expected` and `actual` have the hashes of the bytes.
    """

    place: str
    expected: Array
    actual: Array
    around: bool = False


def stored_difference(
    storage: int, expected: Array, actual: Array, views: Sequence[InputView]
) -> StoredDifference:
    """The difference of a storage, given the hashes of its bytes, which are not all equal."""
    own = [view for view in views if view.storage == storage]
    for view in own:
        if max(view.ends) > expected.size:  # the run made the storage shorter
            continue
        one, other = view.elements(expected), view.elements(actual)
        if not np.array_equal(one, other):
            return StoredDifference(f"input {view.number}", one, other)
    byte = int(np.flatnonzero(expected != actual)[0])
    return StoredDifference(_around(byte, own), expected, actual, around=True)


def _around(byte: int, views: Sequence[InputView]) -> str:
    """Bytes of a storage by the inputs that view it: 'bytes after input 1's view'."""
    last = max(views, key=lambda view: view.ends[1])
    first = min(views, key=lambda view: view.ends[0])
    if byte >= last.ends[1]:
        return f"bytes after input {last.number}'s view"
    if byte < first.ends[0]:
        return f"bytes before input {first.number}'s view"
    return f"bytes between the elements of input {first.number}"
