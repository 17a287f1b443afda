"""Copies of the operands of a call, laid out in memory as the operator needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

# (the number of a storage, its size in bytes, the offset of a tensor in it, its strides, its lazy
# conjugate bit, its lazy negative bit)
Layout: TypeAlias = "tuple[int, int, int, tuple[int, ...], bool, bool]"


def copy_with_strides(tensor: Any, *, located: bool) -> Any:
    """A copy with the same strides; if `located`, also at the same offset, in as large a storage.

    What is no tensor stays as it is.
    """
    if not isinstance(tensor, torch.Tensor):
        return tensor
    nbytes: Any = tensor.untyped_storage().nbytes()
    # A data-dependent size is not known before the call.
    if located and (isinstance(nbytes, int) or nbytes.node.has_hint()):
        memory = torch.empty(nbytes, dtype=torch.uint8, device=tensor.device)
        copy = view_in(memory, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())
    else:
        copy = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
    span = 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    # The whole span is copied, gaps included: `copy_` refuses a tensor that overlaps itself.
    if tensor.numel():
        copy.as_strided((span,), (1,)).copy_(tensor.as_strided((span,), (1,)))
    return copy


def laid_out(tensors: Sequence[torch.Tensor], layouts: Sequence[Layout]) -> list[torch.Tensor]:
    """Copies of tensors in these layouts; those with the same number of a storage share it."""
    memories: dict[int, torch.Tensor] = {}
    copies = []
    for tensor, layout in zip(tensors, layouts, strict=True):
        storage, nbytes, offset, strides, conj, neg = layout
        if storage not in memories:
            memories[storage] = torch.zeros(nbytes, dtype=torch.uint8, device=tensor.device)
        copy = view_in(memories[storage], tensor.dtype, tensor.shape, strides, offset)
        # The dispatcher resolves these bits into a copy, which shares no memory with the others.
        copy = copy.conj() if conj else copy
        copies.append(torch._neg_view(copy) if neg else copy)
        destination, source = copies[-1], tensor
        # `copy_` refuses a destination with a stride of zero. All of its elements are equal here.
        for dim, stride in enumerate(strides):
            if stride == 0 and tensor.numel():
                destination, source = destination.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
        destination.copy_(source)
    return copies


def view_in(
    memory: torch.Tensor,
    dtype: torch.dtype,
    sizes: Sequence[Any],
    strides: Sequence[Any],
    offset: Any,
) -> torch.Tensor:
    """A view of memory (bytes) as elements of a dtype."""
    # A storage may end with a part of an element.
    whole = memory[: memory.numel() // dtype.itemsize * dtype.itemsize]
    return whole.view(dtype).as_strided(sizes, strides, offset)
