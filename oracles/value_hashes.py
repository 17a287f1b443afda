"""Tokens: 64-bit hashes that stand for what a byte holds, and how those of an element are combined and spread.

An element is read as one combination of the tokens of its bytes, and stored as one token a byte.
Sums of tokens are taken modulo 2^64, so overflow is meant (`numpy.errstate(over="ignore")` around a
run).
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

from programs import storage_bytes

Array: TypeAlias = npt.NDArray[np.uint64]


def hashed(*parts: object) -> np.uint64:
    """One token of plain values; the same in every process."""
    return np.uint64(
        int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")
    )


def _constants(name: str, count: int) -> Array:
    return np.frombuffer(hashlib.shake_128(name.encode()).digest(8 * count), np.uint64).copy()


_MOST_BYTES = 16  # of an element
_WEIGHTS = _constants("weights", _MOST_BYTES) | np.uint64(
    1
)  # of the bytes of an element, when it is read
_PLACES = _constants("places", _MOST_BYTES)  # tell the bytes of an element apart, when it is stored
OPERANDS = _constants("operands", 256) | np.uint64(1)
_BYTES = _constants("bytes", 256)  # the tokens of numbers that come from no input
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = np.array([30, 27, 31], np.uint64)
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
_POSITIONS = _constants("positions", 1 << 12) | np.uint64(1)


def mixed(tokens: Array) -> Array:
    """Each token scrambled (the finalizer of splitmix64), so that sums of tokens do not cancel from op to op."""
    scrambled: Array = tokens ^ (tokens >> _SHIFTS[0])
    scrambled *= _FACTORS[0]
    scrambled ^= scrambled >> _SHIFTS[1]
    scrambled *= _FACTORS[1]
    scrambled ^= scrambled >> _SHIFTS[2]
    return scrambled


def sequence(start: np.uint64, count: int) -> Array:
    """So many tokens, each of its own, that depend on a start."""
    return mixed(start + np.arange(1, count + 1, dtype=np.uint64) * _STEP)


@functools.lru_cache(maxsize=256)
def tokens_of(name: str, number: int, count: int) -> Array:
    """The tokens that the bytes of a storage start with."""
    return sequence(hashed(name, number), count)


def grown(tokens: Array, count: int) -> Array:
    """The tokens of a storage that grew to so many bytes: the new ones are unwritten."""
    return np.concatenate((tokens, tokens_of("unwritten", 0, count)[tokens.size :]))


def combined(tokens: Array) -> Array:
    """One token an element, of those of its bytes (the last dimension)."""
    together: Array = tokens @ _WEIGHTS[: tokens.shape[-1]]
    return together


def spread(elements: Array, itemsize: int) -> Array:
    """One token a byte (a new last dimension), of one token an element."""
    each: Array = elements[..., None] ^ _PLACES[:itemsize]
    return each


def digest(elements: Array) -> int:
    """One token of many, in order."""
    flat = elements.ravel()
    weights = _POSITIONS if flat.size <= _POSITIONS.size else sequence(_STEP, flat.size)
    return int(mixed(flat) @ weights[: flat.size]) ^ int(hashed(elements.shape))


@dataclass(slots=True)
class Names:
    """What each token of an element stands for, to spell terms by: an op and what it read, or an element of an input."""

    terms: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def note(
        self, elements: Array, label: Callable[[int], str], read: Sequence[Array] = ()
    ) -> None:
        """Note a name for each element; `read` are the tokens that it was made of, each of the size of `elements`."""
        operands = [each.ravel().tolist() for each in read]
        for index, token in enumerate(elements.ravel().tolist()):
            self.terms.setdefault(token, (label(index), tuple(each[index] for each in operands)))

    def spell(self, token: int, depth: int = 4) -> str:
        """The term behind a token."""
        label, read = self.terms.get(token, ("bytes of several elements", ()))
        if not read:
            return label
        return f"{label}({', '.join(self.spell(each, depth - 1) for each in read) if depth else '...'})"


def element(name: str, sizes: tuple[int, ...], index: int) -> str:
    """The name of an element, by its place in order: 'x0[1, 2]'."""
    return f"{name}{[int(each) for each in np.unravel_index(index, sizes)] if sizes else ''}"


# --- bytes and bits -------------------------------------------------------------------------------


def bytes_in(storage: torch.UntypedStorage) -> npt.NDArray[np.uint8]:
    """The bytes of a storage, as numbers."""
    return storage_bytes.bytes_of(storage).cpu().numpy()


def bytes_of(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """The bytes of a tensor: its sizes, then those of an element."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    data = bytes_in(plain.untyped_storage())
    start, item = plain.storage_offset() * plain.element_size(), plain.element_size()
    return data[start : start + plain.numel() * item].reshape(*plain.shape, item)


def of_bytes(data: npt.NDArray[np.uint8]) -> Array:
    """The tokens of bytes that come from no input."""
    return _BYTES[data]


def with_bits(tensor: torch.Tensor, tokens: Array) -> Array:
    """What a tensor with lazy bits shows of tokens in memory, or stores."""
    if tensor.is_neg():
        tokens = negative(tokens, tensor.dtype)
    return conjugated(tokens, tensor.dtype) if tensor.is_conj() else tokens


def negative(tokens: Array, dtype: torch.dtype) -> Array:
    """The negated number; twice, the number. A complex number is negated part by part."""
    return tokens ^ _sign(dtype.to_real())


def conjugated(tokens: Array, dtype: torch.dtype) -> Array:
    """The conjugate of a complex number; twice, the number."""
    tokens = tokens.copy()
    tokens[..., tokens.shape[-1] // 2 :] ^= _sign(dtype.to_real())
    return tokens


@functools.cache
def _sign(dtype: torch.dtype) -> np.uint64:
    """What a minus adds to the token of a byte; one for each dtype, since they have it in other bits."""
    return hashed("negative", dtype)
