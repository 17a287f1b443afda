"""The numbers in a program's storages, and the tensors that view them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from programs.program import Program, Storage

T = TypeVar("T")

EXACT_INTEGERS = {torch.bfloat16: 256, torch.float16: 2048}


def fill(storage: Storage, index: int, seed: int) -> torch.Tensor:
    """A 1-d tensor of `storage.length` small integers, distinct as far as the dtype represents them exactly.

    Integers count from 0, so that they can serve as indices; floating-point and complex numbers
    count from 1, so that no product vanishes. A seed other than 0 permutes them (an affine map
    modulo the length, so that no random generator's version matters); a later storage of the same
    program holds other numbers.
    """
    return _filled(storage, index, seed).clone()


@functools.lru_cache(
    maxsize=64
)  # a program is filled several times in a row: for eager, for the target, for its build
def _filled(storage: Storage, index: int, seed: int) -> torch.Tensor:
    length = storage.length
    positions = torch.arange(length, dtype=torch.int64)
    if seed and length > 1:
        step = next(
            k
            for k in range(seed % length + 1, seed % length + 2 * length)
            if math.gcd(k, length) == 1
        )
        positions = (positions * step + seed // length) % length
    if storage.dtype == torch.bool:
        return (positions + index) % 3 != 0
    if storage.dtype == torch.int64:
        return positions
    numbers = positions + 1 + 10 * index
    if storage.dtype in EXACT_INTEGERS:
        numbers = numbers % EXACT_INTEGERS[storage.dtype]
    if storage.dtype.is_complex:
        return torch.complex(
            numbers.to(torch.float32), (length + 1 - positions).to(torch.float32)
        ).to(storage.dtype)
    return numbers.to(storage.dtype)


def input_tensors(program: Program, device: str = "cpu") -> list[torch.Tensor]:
    """Fresh input tensors: one buffer a storage, each input a view into its own, so that sharing is as declared."""
    buffers = [
        fill(each, index, program.seed).to(device) for index, each in enumerate(program.storages)
    ]
    tensors = []
    for each in program.inputs:
        buffer = buffers[each.storage]
        view = torch.empty(0, dtype=each.dtype, device=device)
        tensors.append(view.set_(buffer.untyped_storage(), each.offset, each.sizes, each.strides))
    return tensors


def clone_inputs(inputs: Sequence[T]) -> list[T]:
    """Fresh tensors with equal storages, strides and offsets, sharing storages among each other as the given ones do.

    A tensor that stands twice in the list stays one object; what is no tensor stays as it is.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    clones: dict[int, Any] = {}
    for each in inputs:
        if id(each) in clones or not isinstance(each, torch.Tensor):
            continue
        storage = each.untyped_storage()
        fresh = storages.setdefault(
            storage._cdata, storage.clone() if storage._cdata not in storages else storage
        )
        clone: Any = torch.empty(0, dtype=each.dtype, device=each.device)
        clones[id(each)] = clone.set_(fresh, each.storage_offset(), each.shape, each.stride())
    return [clones.get(id(each), each) for each in inputs]
