"""`HashedMemory`: the value hash of each byte of each storage, and its readers and writers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from aliasproof.ir.storages import entries_of
from aliasproof.oracles.value_hashes import (
    Array,
    SymbolicValues,
    are_constants,
    element,
    element_hashes,
    grown,
    hash_of,
    initial,
    mixed,
    of_constant,
    of_storage,
    spread,
    unwritten,
    with_lazy_bits,
)


@dataclass(slots=True)
class HashedStorage:
    """The value hash of each byte of a storage. The storage stays alive, so its id is unique."""

    storage: torch.UntypedStorage
    hashes: Array


class HashedMemory:
    """The hashed storages of one run. Those of the inputs exist from the start.

    If there are `symbols`, the expression behind each hash is noted in them. The hashes of inputs,
    and of memory that nothing has written, depend on the `seed`.
    """

    def __init__(
        self, inputs: Sequence[torch.Tensor], symbols: SymbolicValues | None = None, seed: int = 0
    ) -> None:
        self.symbols = symbols
        self.seed = seed
        self._storages: dict[int, HashedStorage] = {}
        for tensor in inputs:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._storages:
                # The number follows the order of the inputs, so two runs start alike.
                start = len(self._storages), seed
                hashes = initial("storage", start, storage.nbytes()).copy()
                self._storages[storage._cdata] = HashedStorage(storage, hashes)
        self._inputs = list(self._storages.values())
        if symbols is not None:
            for number, tensor in enumerate(inputs):
                name = functools.partial(element, f"x{number}", tuple(tensor.shape))
                symbols.note(self.elements(tensor), name)

    def of_inputs(self) -> list[Array]:
        """The hashes of the storages that the inputs came with, as they are now."""
        return [self.of(hashed_storage.storage) for hashed_storage in self._inputs]

    def of(self, storage: torch.UntypedStorage) -> Array:
        """The hashes of a storage, one per byte."""
        stored = self._storages.get(storage._cdata)
        if stored is None:  # not an input and not made in the run: a constant
            stored = self._storages[storage._cdata] = HashedStorage(storage, of_storage(storage))
        if storage.nbytes() > stored.hashes.size:  # it was resized
            stored.hashes = grown(stored.hashes, storage.nbytes(), self.seed)
        return stored.hashes

    def read(self, tensor: torch.Tensor) -> Array:
        """The hashes that a tensor shows: its sizes, then the bytes of an element."""
        return with_lazy_bits(tensor, self._stored_hashes(tensor))

    def elements(self, tensor: torch.Tensor) -> Array:
        """One hash per element of a tensor."""
        return element_hashes(self.read(tensor))

    def write(self, tensor: torch.Tensor, hashes: Array) -> None:
        """Store what a tensor shows from now on."""
        self._stored_hashes(tensor)[...] = with_lazy_bits(tensor, hashes)

    def _stored_hashes(self, tensor: torch.Tensor) -> Array:
        """The hashes in memory, as a view: sizes of the tensor, then the bytes of an element."""
        hashes, offset = self.of(tensor.untyped_storage()), int(tensor.storage_offset())
        return entries_of(hashes, tensor.shape, tensor.stride(), offset, tensor.element_size())

    def is_constant(self, tensor: torch.Tensor) -> bool:
        """Whether nothing that a tensor shows comes from an input."""
        return are_constants(self.read(tensor))

    def read_as(self, source: torch.Tensor, dtype: torch.dtype) -> Array:
        """What a tensor shows, converted to a dtype."""
        if source.dtype != dtype and self.is_constant(source):
            return self.constant(source.detach().to(dtype))
        return self.converted(self.read(source), source.dtype, dtype)

    def converted(self, hashes: Array, old: torch.dtype, new: torch.dtype) -> Array:
        """Hashes of one dtype as those of another."""
        if old == new:
            return hashes
        # One hash per element: a cast mixes all bytes of an element.
        read = element_hashes(hashes)
        made = spread(mixed(read + hash_of("to", old, new)), new.itemsize)
        if self.symbols is not None:
            self.symbols.note(element_hashes(made), lambda index: str(new), [read])
        return made

    def make(self, tensor: torch.Tensor, hashes: Array | None = None) -> None:
        """Add a tensor that an op made, and what it shows. The bytes around it are unwritten."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._storages and storage.nbytes():
            return  # the op returned memory that existed before
        fresh = HashedStorage(storage, unwritten(storage.nbytes(), self.seed).copy())
        self._storages[storage._cdata] = fresh
        if hashes is not None:
            self.write(tensor, hashes)

    def constant(self, tensor: torch.Tensor) -> Array:
        """The hashes of a tensor whose data come from no input."""
        made = of_constant(tensor)
        if self.symbols is not None:
            values = tensor.flatten().tolist()
            self.symbols.note(element_hashes(made), lambda index: str(values[index]))
        return made

    def copy_storage(self, base: torch.Tensor, result: torch.Tensor) -> None:
        """Copy all bytes, also those around the tensors, if both have one layout and size."""
        new, old = self.of(result.untyped_storage()), self.of(base.untyped_storage())
        ours, theirs = ((tensor.stride(), tensor.storage_offset()) for tensor in (result, base))
        # Else the clone is dense: it has no bytes around its elements.
        if ours == theirs and new.size == old.size:
            new[:] = old

    def broadcast(self, source: torch.Tensor, target: torch.Tensor) -> Array:
        """What a source shows, converted and broadcast to a target."""
        shape = (*target.shape, target.element_size())
        return np.broadcast_to(self.read_as(source, target.dtype), shape)
