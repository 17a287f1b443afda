"""The inputs of a first call, made from those of the second: the same tensors, otherwise.

These functions are printed into reproducers as they are, so they need torch alone. Those named
`other_...` choose one of the others, which says how the inputs differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from aliasproof.targets.gradients import requiring_gradients

Maker: TypeAlias = Callable[[list[torch.Tensor]], list[torch.Tensor]]


def shares(inputs: list[torch.Tensor]) -> bool:
    """Whether two of the inputs are in one storage."""
    return len({x.untyped_storage()._cdata for x in inputs}) < len(inputs)


# --- sharing --------------------------------------------------------------------------------------


def apart(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, each in a storage of its own."""
    clones = [(x, x.untyped_storage().clone()) for x in inputs]
    return [x.new_empty(0).set_(s, x.storage_offset(), x.shape, x.stride()) for x, s in clones]


def together(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, those of one dtype in one storage, if all or none require gradients."""
    by_size = sorted(inputs, key=lambda x: x.untyped_storage().nbytes())
    made = {(x.dtype, x.requires_grad): x.untyped_storage().clone() for x in by_size}
    pairs = [(x, made[x.dtype, x.requires_grad]) for x in inputs]
    return [x.new_empty(0).set_(s, x.storage_offset(), x.shape, x.stride()) for x, s in pairs]


def other_sharing(inputs: list[torch.Tensor]) -> Maker | None:
    """Apart if some share a storage, else together; if none can, at another offset."""
    if shares(inputs):
        return apart
    kinds = {(x.dtype, x.requires_grad) for x in inputs}
    return together if len(kinds) < len(inputs) else later


# --- layouts --------------------------------------------------------------------------------------


def later(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, 16 bytes later in their storages."""
    made: dict[int, torch.Tensor] = {}
    for x in inputs:
        flat = x.new_empty(0, dtype=torch.uint8).set_(x.untyped_storage())
        made.setdefault(x.untyped_storage()._cdata, torch.cat([flat.new_zeros(16), flat]))
    storages = [made[x.untyped_storage()._cdata].untyped_storage() for x in inputs]
    return [
        x.new_empty(0).set_(s, x.storage_offset() + 16 // x.itemsize, x.shape, x.stride())
        for x, s in zip(inputs, storages, strict=True)
    ]


def strided(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors with dims in the opposite order, and gaps between the elements."""
    spaces = [x.new_zeros([*reversed(x.shape), 2])[..., 1] for x in inputs]
    return [
        space.permute(tuple(reversed(range(x.dim())))).copy_(x)
        for space, x in zip(spaces, inputs, strict=True)
    ]


def other_layouts(inputs: list[torch.Tensor]) -> Maker | None:
    """Other strides; where storages are shared, other offsets."""
    return later if shares(inputs) else strided


# --- sizes, dtypes, gradients ---------------------------------------------------------------------


def larger(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Larger tensors: each size of 2 or more grows by 1. The new elements are 0.

    Dims have the same order in memory and the same gaps, and the offset in the storage stays.
    """
    made = []
    for x in inputs:
        sizes, strides = [n + (n > 1) for n in x.shape], list(x.stride())
        reach = new_reach = 0  # what the dims of smaller stride take, in elements
        for dim in sorted(range(x.dim()), key=lambda dim: (x.stride(dim), x.size(dim))):
            if 0 < reach <= x.stride(dim):
                strides[dim] += new_reach - reach
            reach = x.stride(dim) * max(x.size(dim), 1)
            new_reach = strides[dim] * max(sizes[dim], 1)
        flat = x.new_empty(0).set_(x.untyped_storage())
        ends = [
            sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
            for shape, steps in ((x.shape, x.stride()), (sizes, strides))
        ]
        flat = torch.cat([flat, flat.new_zeros(max(ends[1] - ends[0], 0))])
        made.append(flat.as_strided(sizes, strides, x.storage_offset()))
    return made


def other_sizes(inputs: list[torch.Tensor]) -> Maker | None:
    """Larger sizes, where no storage is shared."""
    grows = any(n > 1 for x in inputs for n in x.shape)
    return larger if grows and not shares(inputs) else None


def converted(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same numbers in another dtype, with the same layouts and sharing."""
    pairs = [
        (torch.float32, torch.float64),
        (torch.complex64, torch.complex128),
        (torch.int64, torch.int32),
    ]
    other = {one: two for a, b in pairs for one, two in ((a, b), (b, a))}
    made: dict[int, torch.Tensor] = {}
    for x in inputs:
        flat = x.new_empty(0).set_(x.untyped_storage())
        key = x.untyped_storage()._cdata
        made.setdefault(key, flat.to(other.get(x.dtype, x.dtype), copy=True))
    flats = [made[x.untyped_storage()._cdata] for x in inputs]
    return [
        flat.new_empty(0).set_(flat.untyped_storage(), x.storage_offset(), x.shape, x.stride())
        for x, flat in zip(inputs, flats, strict=True)
    ]


def other_dtypes(inputs: list[torch.Tensor]) -> Maker | None:
    """Another dtype, where a storage has views of one dtype."""
    dtypes = {(x.untyped_storage()._cdata, x.dtype) for x in inputs}
    one_each = len(dtypes) == len({number for number, _ in dtypes})
    changed = converted(inputs) if one_each else inputs
    differ = any(x.dtype != y.dtype for x, y in zip(inputs, changed, strict=True))
    return converted if differ else None


def differentiable(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, computed from leaves that require gradients."""
    with torch.enable_grad():
        return [
            x.clone().requires_grad_(x.is_floating_point() or x.is_complex()).clone()
            for x in inputs
        ]


def detached(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors without gradients."""
    return [x.detach() for x in inputs]


def other_gradients(inputs: list[torch.Tensor]) -> Maker | None:
    """With gradients, for dtypes that have them; without, if some require them."""
    if any(x.requires_grad for x in inputs):
        return detached
    if not any(x.is_floating_point() or x.is_complex() for x in inputs):
        return None
    return requiring_gradients if shares(inputs) else differentiable
