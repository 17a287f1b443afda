"""Value hashes: 64 bits that stand for the value of a byte, and memory of such hashes.

An element is read as one combination of the hashes of its bytes, and stored as one hash per byte.
Sums of hashes are modulo 2^64, so overflow is intended: runs need `numpy.errstate(over="ignore")`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from aliasproof.ir.values import bytes_of, entries_of

Array: TypeAlias = npt.NDArray[np.uint64]


def hash_of(*parts: object) -> np.uint64:
    """One hash of plain values; the same in every process."""
    return np.uint64(
        int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")
    )


def _constants(name: str, count: int) -> Array:
    return np.frombuffer(hashlib.shake_128(name.encode()).digest(8 * count), np.uint64).copy()


# Weights are odd (`| 1`): a product with an odd number modulo 2^64 loses no bit.
_ODD = np.uint64(1)
_MOST_BYTES = 16  # of an element
_WEIGHTS = _constants("weights", _MOST_BYTES) | _ODD  # of the bytes of an element that is read
_PLACES = _constants("places", _MOST_BYTES)  # added to an element's hash, so that its bytes differ
OPERANDS = _constants("operands", 256) | _ODD
_BYTES = _constants("bytes", 256)  # the hashes of bytes that depend on no input
_BYTE_OF = np.argsort(_BYTES).astype(np.uint8)
_SORTED_BYTES = _BYTES[_BYTE_OF]
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = np.array([30, 27, 31], np.uint64)
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
_POSITIONS = _constants("positions", 1 << 12) | _ODD


def mix_hashes(hashes: Array) -> Array:
    """Each hash scrambled by the finalizer of splitmix64.

    Without it, sums of hashes would cancel from op to op: `x + y - y` would hash like `x`.
    """
    scrambled: Array = hashes ^ (hashes >> _SHIFTS[0])
    scrambled *= _FACTORS[0]
    scrambled ^= scrambled >> _SHIFTS[1]
    scrambled *= _FACTORS[1]
    scrambled ^= scrambled >> _SHIFTS[2]
    return scrambled


def sequence(start: np.uint64, count: int) -> Array:
    """`count` different hashes that depend on `start`."""
    return mix_hashes(start + np.arange(1, count + 1, dtype=np.uint64) * _STEP)


@functools.lru_cache(maxsize=256)
def initial(name: str, number: int | tuple[int, int], count: int) -> Array:
    """The initial hashes of the bytes of a storage."""
    return sequence(hash_of(name, number), count)


def unwritten(count: int, seed: int) -> Array:
    """The hashes of `count` bytes that nothing has written yet."""
    return initial("unwritten", seed, count)


def extend_hashes(hashes: Array, count: int, seed: int) -> Array:
    """The hashes of a storage that was resized to `count` bytes: the new ones are unwritten."""
    return np.concatenate((hashes, unwritten(count, seed)[hashes.size :]))


def element_hashes(hashes: Array) -> Array:
    """One hash per element, from the hashes of its bytes (the last dim)."""
    together: Array = hashes @ _WEIGHTS[: hashes.shape[-1]]
    return together


def spread(elements: Array, itemsize: int) -> Array:
    """One hash per byte (a new last dim), from one hash per element."""
    per_byte: Array = elements[..., None] ^ _PLACES[:itemsize]
    return per_byte


def digest(elements: Array) -> int:
    """One hash of a sequence of hashes."""
    return int(digests(elements.ravel())) ^ int(hash_of(elements.shape))


def digests(elements: Array) -> Array:
    """One hash per row of the last dim, which depends on the order in the row."""
    count = elements.shape[-1]
    # Weights depend on the position, so a permutation has another digest.
    weights = _POSITIONS if count <= _POSITIONS.size else sequence(_STEP, count)
    per_row: Array = mix_hashes(elements) @ weights[:count]
    return per_row


# --- bytes and bits -------------------------------------------------------------------------------


def of_constant(tensor: torch.Tensor) -> Array:
    """The hashes of a tensor whose data depend on no input: its sizes, then the bytes."""
    if tensor._is_zerotensor():  # forward mode's placeholder for a missing tangent has no memory
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
    # Lazy bits are resolved: the hash belongs to the value, not to its storage.
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # A copy, since torch does not resize a storage that numpy shares.
    data = bytes_of(plain.untyped_storage()).clone().numpy()
    item = plain.element_size()
    start = plain.storage_offset() * item
    return of_bytes(data[start : start + plain.numel() * item].reshape(*plain.shape, item))


def of_bytes(data: npt.NDArray[np.uint8]) -> Array:
    """The hashes of bytes that depend on no input."""
    return _BYTES[data]


def are_constants(hashes: Array) -> bool:
    """Whether all hashes are hashes of bytes that depend on no input."""
    return bool(_constant_elements(hashes).all())


def _constant_elements(hashes: Array) -> npt.NDArray[np.bool_]:
    """Whether all bytes of each element depend on no input."""
    candidates = _SORTED_BYTES[np.searchsorted(_SORTED_BYTES, hashes) % _SORTED_BYTES.size]
    constant: npt.NDArray[np.bool_] = (candidates == hashes).all(axis=-1)
    return constant


def with_lazy_bits(tensor: torch.Tensor, hashes: Array) -> Array:
    """Apply the tensor's lazy negation and conjugation: from memory to values, or back."""
    if tensor.is_neg():
        hashes = negative(hashes, tensor.dtype)
    return conjugated(hashes, tensor.dtype) if tensor.is_conj() else hashes


def negative(hashes: Array, dtype: torch.dtype) -> Array:
    """Negate; an involution. A complex value is negated part by part."""
    real = dtype.to_real()
    parts = hashes.reshape(*hashes.shape[:-1], hashes.shape[-1] // real.itemsize, real.itemsize)
    # The negative of a constant is a constant, since a graph may contain the negated constant.
    constant = _constant_elements(parts)
    # The same for each byte, and another one per dtype, like the sign bit.
    made = parts ^ hash_of("negative", real)
    made[constant] = of_bytes(
        _negative(_BYTE_OF[np.searchsorted(_SORTED_BYTES, parts[constant])], real)
    )
    return made.reshape(hashes.shape)


def conjugated(hashes: Array, dtype: torch.dtype) -> Array:
    """Conjugate a complex value; an involution."""
    # The second half of an element is the imaginary part.
    half = hashes.shape[-1] // 2
    imaginary = negative(hashes[..., half:], dtype.to_real())
    return np.concatenate((hashes[..., :half], imaginary), axis=-1)


def _negative(data: npt.NDArray[np.uint8], dtype: torch.dtype) -> npt.NDArray[np.uint8]:
    """The bytes of the negated elements; the last dim has the bytes of an element."""
    made = data.copy()
    if dtype.is_floating_point:  # the sign is the highest bit of the last byte
        made[..., -1] ^= np.uint8(0x80)
    else:
        numbers = made.view(f"u{dtype.itemsize}")
        np.negative(numbers, out=numbers)
    return made


# --- symbolic values ------------------------------------------------------------------------------


@dataclass(slots=True)
class SymbolicValues:
    """For each element's hash: an op and the hashes that it read, or an element of an input."""

    expressions: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def note(
        self, elements: Array, label: Callable[[int], str], read: Sequence[Array] = ()
    ) -> None:
        """Record the expression of each element. `read` are operands with the size of `elements`.

        `label(index)` is the op, or the name of the element.
        """
        operands = [operand.ravel().tolist() for operand in read]
        for index, value in enumerate(elements.ravel().tolist()):
            # The same hash may be computed twice; the first expression is kept.
            reads = tuple(operand[index] for operand in operands)
            self.expressions.setdefault(value, (label(index), reads))

    def spell(self, value: int, depth: int = 4) -> str:
        """The expression behind a hash: 'mul[other=0](add[other=1](x0[1]))'."""
        # Bytes that were stored as parts of several elements have no expression.
        label, read = self.expressions.get(value, ("bytes of several elements", ()))
        if not read:
            return label
        inner = ", ".join(self.spell(tensor, depth - 1) for tensor in read) if depth else "..."
        return f"{label}({inner})"

    def first_foreign(self, value: int, known: SymbolicValues) -> int | None:
        """The first computation behind a value that `known` does not have; None if it has all.

        `known` has all hashes that it reads: here one run starts to compute something else.
        """
        seen: set[int] = set()
        waiting = [value]
        while waiting:
            current = waiting.pop()
            if current in seen or current in known.expressions:
                continue
            seen.add(current)
            _, read = self.expressions.get(current, ("", ()))
            foreign = [operand for operand in read if operand not in known.expressions]
            if not foreign:
                return current
            waiting = foreign
        return None


def element(name: str, sizes: tuple[int, ...], index: int) -> str:
    """The name of an element, by its index in row-major order: 'x0[1, 2]'."""
    return (
        f"{name}{[int(position) for position in np.unravel_index(index, sizes)] if sizes else ''}"
    )


# --- hashed memory --------------------------------------------------------------------------------


@dataclass(slots=True)
class HashedStorage:
    """The value hash of each byte of a storage. Keeps the storage alive, so its id is unique."""

    storage: torch.UntypedStorage
    hashes: Array


class HashedMemory:
    """The hashed storages of one run. Those of the inputs exist from the start.

    With `symbols`, the expression behind each hash is recorded there. The hashes of inputs and of
    unwritten memory depend on the `seed`.
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
            # A copy, since torch does not resize a storage that numpy shares.
            hashes = of_bytes(bytes_of(storage).cpu().clone().numpy())
            stored = self._storages[storage._cdata] = HashedStorage(storage, hashes)
        if storage.nbytes() > stored.hashes.size:  # it was resized
            stored.hashes = extend_hashes(stored.hashes, storage.nbytes(), self.seed)
        return stored.hashes

    def read(self, tensor: torch.Tensor) -> Array:
        """The hashes that a tensor shows: its sizes, then the bytes of an element."""
        return with_lazy_bits(tensor, self._stored_hashes(tensor))

    def elements(self, tensor: torch.Tensor) -> Array:
        """One hash per element of a tensor."""
        return element_hashes(self.read(tensor))

    def write(self, tensor: torch.Tensor, hashes: Array) -> None:
        """Store the hashes that a tensor shows from now on."""
        self._stored_hashes(tensor)[...] = with_lazy_bits(tensor, hashes)

    def _stored_hashes(self, tensor: torch.Tensor) -> Array:
        """The hashes in memory, as a view: sizes of the tensor, then the bytes of an element."""
        hashes, offset = self.of(tensor.untyped_storage()), int(tensor.storage_offset())
        return entries_of(hashes, tensor.shape, tensor.stride(), offset, tensor.element_size())

    def is_constant(self, tensor: torch.Tensor) -> bool:
        """Whether no value that a tensor shows depends on an input."""
        return are_constants(self.read(tensor))

    def read_as(self, source: torch.Tensor, dtype: torch.dtype) -> Array:
        """The hashes that a tensor shows, converted to a dtype."""
        if source.dtype != dtype and self.is_constant(source):
            return self.constant(source.detach().to(dtype))
        return self.converted(self.read(source), source.dtype, dtype)

    def converted(self, hashes: Array, old: torch.dtype, new: torch.dtype) -> Array:
        """Convert hashes from one dtype to another."""
        if old == new:
            return hashes
        # One hash per element: a cast mixes all bytes of an element.
        read = element_hashes(hashes)
        made = spread(mix_hashes(read + hash_of("to", old, new)), new.itemsize)
        if self.symbols is not None:
            self.symbols.note(element_hashes(made), lambda index: str(new), [read])
        return made

    def make(self, tensor: torch.Tensor, hashes: Array | None = None) -> None:
        """Add a tensor that an op made, with its hashes. The bytes around it are unwritten."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._storages and storage.nbytes():
            return  # the op returned memory that existed before
        fresh = HashedStorage(storage, unwritten(storage.nbytes(), self.seed).copy())
        self._storages[storage._cdata] = fresh
        if hashes is not None:
            self.write(tensor, hashes)

    def constant(self, tensor: torch.Tensor) -> Array:
        """The hashes of a tensor whose data depend on no input."""
        made = of_constant(tensor)
        if self.symbols is not None:
            values = tensor.flatten().tolist()
            self.symbols.note(element_hashes(made), lambda index: str(values[index]))
        return made

    def copy_storage(self, base: torch.Tensor, result: torch.Tensor) -> None:
        """Copy all bytes, also those around the tensors, if both have equal layouts and sizes."""
        new, old = self.of(result.untyped_storage()), self.of(base.untyped_storage())
        ours, theirs = ((tensor.stride(), tensor.storage_offset()) for tensor in (result, base))
        # Else the clone is dense: it has no bytes around its elements.
        if ours == theirs and new.size == old.size:
            new[:] = old

    def broadcast(self, source: torch.Tensor, target: torch.Tensor) -> Array:
        """The hashes that a source shows, converted and broadcast to a target."""
        shape = (*target.shape, target.element_size())
        return np.broadcast_to(self.read_as(source, target.dtype), shape)
