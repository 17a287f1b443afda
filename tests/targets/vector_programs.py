"""Programs of a few equal tensors, from their body."""

import math
from collections.abc import Sequence

import torch

from aliasproof.ir.parsing import parse_source
from aliasproof.ir.program import Input, Program, Storage


def of_vectors(
    body: str,
    *storages: int,
    sizes: tuple[int, ...] = (4,),
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.float32),
) -> Program:
    """A program of tensors x0, x1, ...; each is a whole storage, given by its number."""
    kept = tuple(Storage(dtypes[number], math.prod(sizes)) for number in sorted(set(storages)))
    strides = torch.empty(sizes).stride()
    inputs = tuple(
        Input(f"x{index}", storage, dtypes[storage], sizes, strides)
        for index, storage in enumerate(storages)
    )
    names = ", ".join(view.name for view in inputs)
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return parse_source(f"def program({names}):\n{lines}", kept, inputs)
