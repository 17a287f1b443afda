"""Storages: their bytes, sets of them by identity, their data, and the tensors that view them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from aliasproof.ir.program import Program, Storage

Entry = TypeVar("Entry", bound=np.generic)
T = TypeVar("T")


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


def texts_of(buffer: torch.Tensor) -> tuple[str, ...]:
    """The elements of a 1-d tensor as text, for `Storage.values`."""
    return tuple(map(element_text, buffer.tolist()))


# --- special values -------------------------------------------------------------------------------
#
# The fill *special*: values for which inverses and rewrites that are right in algebra are wrong.
#
# `base + (new - base)` is `new` for small integers, and NaN or 0 for infinity, NaN or 1e20. A
# rewrite of `x + 0` to `x` changes -0.0.


INDEX_DTYPES = (torch.int64, torch.int32)

# From one position to the next. A power of two is coprime to the odd number of choices below, so
# each choice has its turn.
STEP = 4


def special_values(
    plain: torch.Tensor, positions: Sequence[int], index: int, seed: int
) -> torch.Tensor:
    """The 1-d tensor `plain`, with about half of its elements replaced by special values.

    `positions` are the positions of its elements in the order of counting, and `index` is that of
    the storage in its program. The plain elements that stay tell an element from its neighbour.

    A storage of an index dtype is replaced only if the sum of index and seed is even. The others
    keep values that can serve as indices. Bools have no special values.
    """
    dtype = plain.dtype
    if dtype == torch.bool or (dtype in INDEX_DTYPES and (index + seed) % 2):
        return plain
    numbers, values = special_parts(dtype), []
    for position, value in zip(positions, plain.tolist(), strict=True):
        turn = STEP * position + index + seed
        new = []
        for shift, old in enumerate((value.real, value.imag) if dtype.is_complex else (value,)):
            # For a complex value, one part or both are replaced: the turns have different periods.
            # In every second turn, the plain value stays.
            place = (turn + shift * position) % (2 * len(numbers) + 1)
            new.append(numbers[place] if place < len(numbers) else old)
        values.append(complex(*new) if dtype.is_complex else new[0])
    return torch.tensor(values, dtype=dtype)


@functools.cache
def special_parts(dtype: torch.dtype) -> tuple[Number, ...]:
    """The special values of a dtype; of a complex one, those of its real and imaginary parts.

    Subnormals are left out: a correct kernel may flush them to zero.
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        limits = torch.iinfo(dtype)
        integers = (limits.max, limits.min, -1, limits.max - 1)
        return tuple(dict.fromkeys(max(number, limits.min) for number in integers))
    kind = torch.finfo(dtype)
    numbers = (math.inf, kind.max, math.nan, -0.0, 1e20, -math.inf, kind.tiny, kind.min)
    kept = []
    for number in numbers:
        # A dtype without infinity, or without a sign, turns some of these into other values.
        stored = torch.tensor([number], dtype=dtype).to(torch.complex128).real.item()
        close = stored == number or math.isclose(stored, number, rel_tol=0.01)
        same = close and math.copysign(1, stored) == math.copysign(1, number)
        if same or (math.isnan(number) and math.isnan(stored)):
            kept.append(number)
    return tuple(kept)


# --- values ---------------------------------------------------------------------------------------


FILLS = ("plain", "special")
# In this attribute, Dynamo notes that an input stays at its address, such as a module's buffer.
STATIC = "_dynamo_static_input_type"

# For each narrow dtype, the largest n such that all integers up to n are exact.
EXACT_INTEGERS = {
    torch.float16: 2048,
    torch.bfloat16: 256,
    torch.float8_e4m3fn: 16,
    torch.float8_e4m3fnuz: 16,
    torch.float8_e5m2: 8,
    torch.float8_e5m2fnuz: 8,
    torch.int16: 2**15 - 1,
    torch.uint8: 2**8 - 1,
    torch.int8: 2**7 - 1,
}


def storage_data(program: Program, index: int) -> torch.Tensor:
    """The data of the storage with that index: a 1-d tensor of its length and dtype."""
    return fill(program.storages[index], index, program.seed, program.fill)


def fill(storage: Storage, index: int, seed: int, kind: str = "plain") -> torch.Tensor:
    """A 1-d tensor of `storage.length` elements: its own values, or else those of the fill.

    *plain*: small integers, distinct if the dtype can represent that. Index dtypes count from 0, so
    that the values can serve as indices. The others count from 1, so that no product vanishes, and
    start again where integers are no longer exact. A seed other than 0 permutes them; a storage
    with another `index` in the same program has other values.

    *special*: about half of these are replaced (see `aliasproof.ir.values`).
    """
    return _contents(storage, index, seed, kind).clone()


# A program is filled several times in a row: for eager, for the target, and for its build.
@functools.lru_cache(maxsize=64)
def _contents(storage: Storage, index: int, seed: int, kind: str) -> torch.Tensor:
    if storage.values:
        numbers = [element_value(text, storage.dtype) for text in storage.values]
        repeated = itertools.islice(itertools.cycle(numbers), storage.length)
        return torch.tensor(list(repeated), dtype=storage.dtype)
    positions = _permutation(storage.length, seed)
    plain = _plain(storage, positions, index)
    if kind == "plain":
        return plain
    return special_values(plain, positions.tolist(), index, seed)


def _plain(storage: Storage, positions: torch.Tensor, index: int) -> torch.Tensor:
    """Small integers at these positions in the order of counting."""
    if storage.dtype == torch.bool:
        return (positions + index) % 3 != 0
    if storage.dtype in INDEX_DTYPES:
        return positions.to(storage.dtype)
    values = positions + 10 * index
    if storage.dtype in EXACT_INTEGERS:
        values = values % EXACT_INTEGERS[storage.dtype]
    values = values + 1
    if storage.dtype.is_complex:
        # The imaginary part counts backwards, so a swap of the two parts shows.
        imaginary = storage.length + 1 - positions
        parts = values.to(torch.float32), imaginary.to(torch.float32)
        return torch.complex(*parts).to(storage.dtype)
    return values.to(storage.dtype)


def _permutation(length: int, seed: int) -> torch.Tensor:
    """The integers from 0 to `length - 1`, in an order that depends on the seed."""
    positions = torch.arange(length, dtype=torch.int64)
    if not seed or length <= 1:
        return positions
    # An affine map modulo the length is a permutation if the step and the length have no common
    # divisor. A random generator would tie the meaning of a seed to a version of torch.
    first = seed % length + 1
    step = next(k for k in range(first, first + 2 * length) if math.gcd(k, length) == 1)
    return (positions * step + seed // length) % length


def input_tensors(program: Program) -> list[torch.Tensor]:
    """Fresh input tensors: one buffer per storage, and each input is a view into its buffer.

    They are on the program's device, with the same data on each.
    """
    device = program.device
    buffers = [storage_data(program, index).to(device) for index in range(len(program.storages))]
    tensors = []
    for view in program.inputs:
        # `set_` gives a tensor without `_base`. AOTAutograd treats inputs with a base differently.
        tensor = torch.empty(0, dtype=view.dtype, device=device)
        storage = buffers[view.storage].untyped_storage()
        tensors.append(tensor.set_(storage, view.offset, view.sizes, view.strides))
        if view.static:
            setattr(tensor, STATIC, "unguarded")
    return tensors


def clone_inputs(inputs: Sequence[T], device: str | None = None) -> list[T]:
    """Fresh tensors with equal data, strides, offsets, and the same sharing of storages.

    A static tensor stays static. A tensor that occurs twice in the list becomes one object. Views
    of one base stay views of one base (AOTAutograd treats them differently). A value that is not a
    tensor is returned unchanged. The tensors are on `device`, or each on its own if none is given.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    clones: dict[int, torch.Tensor] = {}

    def clone(tensor: Any) -> Any:
        if id(tensor) in clones:
            return clones[id(tensor)]
        storage, base = tensor.untyped_storage(), tensor._base
        # A caller may have assigned other data to the view.
        of_base = base is not None and base.untyped_storage()._cdata == storage._cdata
        if of_base and base.dtype == tensor.dtype:
            layout = tensor.shape, tensor.stride(), tensor.storage_offset()
            # As callers make views: autograd does not forbid writes to them.
            with torch.enable_grad():
                made = _static_as(tensor, clone(base).as_strided(*layout))
        else:
            if storage._cdata not in storages:
                # Between devices as a tensor: storages cannot be copied between all of them.
                storages[storage._cdata] = (
                    storage.clone()
                    if device is None
                    else bytes_of(storage).to(device, copy=True).untyped_storage()
                )
            made = move_to_storage(storages[storage._cdata], tensor, tensor.dtype)
        clones[id(tensor)] = made
        return made

    return [clone(it) if isinstance(it, torch.Tensor) else it for it in inputs]


def move_to_storage(
    storage: torch.UntypedStorage, tensor: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """A tensor like this one in another storage, without `_base`. It is static if this one is."""
    empty: Any = torch.empty(0, dtype=dtype, device=storage.device)
    return _static_as(
        tensor, empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    )


def _static_as(tensor: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    if hasattr(tensor, STATIC):
        setattr(made, STATIC, getattr(tensor, STATIC))
    return made
