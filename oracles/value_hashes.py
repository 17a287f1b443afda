"""Value hashes: 64 bits in place of the value of a byte, and how those of an element combine.

An element is read as one combination of the hashes of its bytes, and stored as one hash per byte.
Sums of hashes are modulo 2^64, so overflow is intended: there must be
`numpy.errstate(over="ignore")` around a run.
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

from aliasproof.ir import storages

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
_PLACES = _constants("places", _MOST_BYTES)  # make the bytes of a stored element different
OPERANDS = _constants("operands", 256) | _ODD
_BYTES = _constants("bytes", 256)  # the hashes of bytes that come from no input
_BYTE_OF = np.argsort(_BYTES).astype(np.uint8)
_SORTED_BYTES = _BYTES[_BYTE_OF]
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = np.array([30, 27, 31], np.uint64)
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
_POSITIONS = _constants("positions", 1 << 12) | _ODD


def mixed(hashes: Array) -> Array:
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
    """`count` different hashes that depend on a start."""
    return mixed(start + np.arange(1, count + 1, dtype=np.uint64) * _STEP)


@functools.lru_cache(maxsize=256)
def initial(name: str, number: int | tuple[int, int], count: int) -> Array:
    """The hashes that the bytes of a storage start with."""
    return sequence(hash_of(name, number), count)


def unwritten(count: int, seed: int) -> Array:
    """The hashes of `count` bytes that nothing has written yet."""
    return initial("unwritten", seed, count)


def grown(hashes: Array, count: int, seed: int) -> Array:
    """The hashes of a storage that grew to `count` bytes: the new ones are unwritten."""
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
    """One hash of many, in order."""
    # Weights depend on the position, so a permutation has another digest.
    flat = elements.ravel()
    weights = _POSITIONS if flat.size <= _POSITIONS.size else sequence(_STEP, flat.size)
    return int(mixed(flat) @ weights[: flat.size]) ^ int(hash_of(elements.shape))


def digests(elements: Array) -> Array:
    """One hash per row of the last dim, which depends on the order in the row."""
    count = elements.shape[-1]
    weights = _POSITIONS if count <= _POSITIONS.size else sequence(_STEP, count)
    per_row: Array = mixed(elements) @ weights[:count]
    return per_row


# --- bytes and bits -------------------------------------------------------------------------------


def of_storage(storage: torch.UntypedStorage) -> Array:
    """The hashes of a storage whose data come from no input."""
    # A copy, since torch does not resize a storage that numpy shares.
    return of_bytes(storages.bytes_of(storage).cpu().clone().numpy())


def of_constant(tensor: torch.Tensor) -> Array:
    """The hashes of a tensor whose data come from no input: its sizes, then the bytes."""
    if tensor._is_zerotensor():  # what forward mode takes for no tangent has no memory
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
    # Lazy bits are resolved: the hash is that of the value, not of its storage.
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # A copy, since torch does not resize a storage that numpy shares.
    data = storages.bytes_of(plain.untyped_storage()).clone().numpy()
    item = plain.element_size()
    start = plain.storage_offset() * item
    return of_bytes(data[start : start + plain.numel() * item].reshape(*plain.shape, item))


def of_bytes(data: npt.NDArray[np.uint8]) -> Array:
    """The hashes of bytes that come from no input."""
    return _BYTES[data]


def are_constants(hashes: Array) -> bool:
    """Whether all hashes are those of bytes that come from no input."""
    return bool(_constant_elements(hashes).all())


def _constant_elements(hashes: Array) -> npt.NDArray[np.bool_]:
    """Whether all bytes of each element come from no input."""
    candidates = _SORTED_BYTES[np.searchsorted(_SORTED_BYTES, hashes) % _SORTED_BYTES.size]
    constant: npt.NDArray[np.bool_] = (candidates == hashes).all(axis=-1)
    return constant


def with_lazy_bits(tensor: torch.Tensor, hashes: Array) -> Array:
    """Apply the tensor's lazy negation and conjugation, between memory and what it shows."""
    if tensor.is_neg():
        hashes = negative(hashes, tensor.dtype)
    return conjugated(hashes, tensor.dtype) if tensor.is_conj() else hashes


def negative(hashes: Array, dtype: torch.dtype) -> Array:
    """The negated value; twice, the value. A complex value is negated part by part."""
    real = dtype.to_real()
    parts = hashes.reshape(*hashes.shape[:-1], hashes.shape[-1] // real.itemsize, real.itemsize)
    # The negative of a constant is a constant: a graph may have it as one.
    constant = _constant_elements(parts)
    made = parts ^ _sign(real)
    made[constant] = of_bytes(
        _negative(_BYTE_OF[np.searchsorted(_SORTED_BYTES, parts[constant])], real)
    )
    return made.reshape(hashes.shape)


def conjugated(hashes: Array, dtype: torch.dtype) -> Array:
    """The conjugate of a complex value; twice, the value."""
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


@functools.cache
def _sign(dtype: torch.dtype) -> np.uint64:
    """What negation adds to the hash of a byte. The sign is in another bit of each dtype."""
    return hash_of("negative", dtype)


# --- symbolic values ------------------------------------------------------------------------------
#
# `SymbolicValues`: the expression behind each value hash, to show in evidence.


@dataclass(slots=True)
class SymbolicValues:
    """By the hash of an element: an op and the hashes that it read, or an element of an input."""

    expressions: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def note(
        self, elements: Array, label: Callable[[int], str], read: Sequence[Array] = ()
    ) -> None:
        """Note the expression of each element. `read` are its operands, of the size of `elements`.

        `label` gives the op or the name of the element at an index.
        """
        operands = [operand.ravel().tolist() for operand in read]
        for index, value in enumerate(elements.ravel().tolist()):
            # The same hash may be computed twice; its first expression is kept.
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

        All that it reads is known: here one run begins to compute something else.
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
