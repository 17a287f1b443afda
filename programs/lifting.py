"""Lifting: tensors and calls that exist, as parts of a program."""

from __future__ import annotations

import torch

from programs.program import Input, Storage


def as_inputs(
    values: dict[str, torch.Tensor], first: int = 0
) -> tuple[tuple[Input, ...], tuple[Storage, ...]]:
    """Inputs with the names, layouts and sharing of these tensors, and their storages.

    The storages are numbered from `first`. Two names of one tensor become two inputs.
    """
    numbers: dict[int, int] = {}
    inputs: list[Input] = []
    storages: list[Storage] = []
    for name, tensor in values.items():
        storage, dtype = tensor.untyped_storage(), tensor.dtype
        if storage._cdata not in numbers:
            numbers[storage._cdata] = first + len(storages)
            storages.append(Storage(dtype, -(-storage.nbytes() // dtype.itemsize)))
        layout = (tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
        inputs.append(Input(name, numbers[storage._cdata], dtype, *layout))
    return tuple(inputs), tuple(storages)
