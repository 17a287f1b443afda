"""The layouts of the inputs of a call, as the key of what is compiled for it.

A compiled graph is a function of such a key alone: the passes run on fakes that are made from the
key, so they see nothing of the inputs that is not in it.

Where an input is in its storage seldom matters. So a key names the offset of an input, and the size
of its storage, only if several inputs share that storage, or if the graph depends on locations
(`capture.locations`). For any other input the fakes have an unlikely offset, in a larger storage,
and what the passes make of them is right for all offsets: 15 slices of a data set are one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.autograd import forward_ad

from aliasproof.reference_pass.eager.copied_operands import view_in
from aliasproof.reference_pass.eager.fake_execution import (
    refuse_without_regions,
    without_record_of_views,
)


class OffsetInStorage(NamedTuple):
    """Where a tensor is: its offset in elements, and the bytes of its storage."""

    offset: int | torch.SymInt
    nbytes: int | torch.SymInt


class InputLayout(NamedTuple):
    """The layout of one input. `location` is None if nothing depends on it.

    `storage` numbers the storages of the inputs in order of first use: addresses differ from call
    to call. `lazy` are the lazy conjugate and negative bits. Composites may ask for
    `requires_grad`.
    """

    storage: int
    location: OffsetInStorage | None
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    lazy: tuple[bool, bool]
    requires_grad: bool


def input_layouts(
    inputs: Sequence[Any],
    attributes: Iterable[torch.Tensor],
    located: bool,
    *,
    graded: bool = True,
) -> tuple[Any, ...]:
    """The layout of each tensor among the inputs, and the type of each other one.

    The attributes of a graph are inputs, too: an input may share a storage with one of them. With
    `located`, each layout has its location. With `graded`, it says who requires a gradient.
    """
    storages, numbers, shared = _storages(inputs, attributes)
    layouts: list[Any] = []
    for value, storage in zip(inputs, storages, strict=True):
        if storage is None:
            layouts.append(type(value))
            continue
        number, nbytes = numbers[storage._cdata], storage.nbytes()
        # A copy of the whole storage raises if the storage ends with a part of an element.
        partial = not value._has_symbolic_sizes_strides and nbytes % value.itemsize != 0
        is_located = located or partial or number in shared
        layouts.append(
            InputLayout(
                number,
                OffsetInStorage(value.storage_offset(), nbytes) if is_located else None,
                value.shape,
                value.stride(),
                value.dtype,
                value.device,
                (value.is_conj(), value.is_neg()),
                graded and value.requires_grad,
            )
        )
    return tuple(layouts)


# Two short loops, since they run at each call: a step of an optimizer has hundreds of inputs.


def _storages(
    inputs: Sequence[Any], attributes: Iterable[torch.Tensor]
) -> tuple[list[torch.UntypedStorage | None], dict[int, int], set[int]]:
    """The storage of each tensor among the inputs, the numbers of all, and those that are shared.

    The key of a number is the address of the storage. Raises `Refused` for a tensor without one.
    """
    numbers: dict[int, int] = {}
    shared: set[int] = set()
    for tensor in attributes:
        shared.add(numbers.setdefault(tensor.untyped_storage()._cdata, len(numbers)))
    storages: list[torch.UntypedStorage | None] = []
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            storages.append(None)
            continue
        if value.layout is not torch.strided:
            refuse_without_regions(value)
        storages.append(storage := value.untyped_storage())
        count = len(numbers)
        number = numbers.setdefault(storage._cdata, count)
        if number != count:
            shared.add(number)
    return storages, numbers, shared


# --- fakes ----------------------------------------------------------------------------------------

# No program counts to these, so what is equal by chance for one offset is not equal here. Counted
# in elements, and a multiple of all element sizes.
_SOME_OFFSET = 16 * 7919
_SOME_MORE = 16 * 6007


def fakes_of(layouts: Sequence[Any], values: Sequence[Any], mode: FakeTensorMode) -> list[Any]:
    """New fake tensors with these layouts, and the given values where no tensor is."""
    memories: dict[int, torch.Tensor] = {}
    # To autograd they are inputs, and no views.
    with unset_fake_temporarily(), torch.no_grad(), without_record_of_views():
        return [
            _fake(layout, memories, mode) if isinstance(layout, InputLayout) else value
            for layout, value in zip(layouts, values, strict=True)
        ]


def _fake(layout: InputLayout, memories: dict[int, torch.Tensor], mode: FakeTensorMode) -> Any:
    refuse_without_regions(layout.dtype)
    # On meta tensors, since each call on fakes takes as long as ten of these.
    if layout.location is None:
        count = _SOME_OFFSET + _elements(layout) + _SOME_MORE
        memory = torch.empty(count, dtype=layout.dtype, device="meta")
        meta = memory.as_strided(layout.sizes, layout.strides, _SOME_OFFSET)
    else:
        offset, nbytes = layout.location
        if layout.storage not in memories:
            memories[layout.storage] = torch.empty(nbytes, dtype=torch.uint8, device="meta")
        meta = view_in(memories[layout.storage], layout.dtype, layout.sizes, layout.strides, offset)
    conj, neg = layout.lazy
    meta = meta.conj() if conj else meta
    meta = torch._neg_view(meta) if neg else meta
    return FakeTensor(mode, meta, layout.device).requires_grad_(layout.requires_grad)


def _elements(layout: InputLayout) -> int:
    """The number of elements of the storage from the first one of a tensor to its last one."""
    if 0 in layout.sizes:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(layout.sizes, layout.strides, strict=True))


# --- transformed inputs ---------------------------------------------------------------------------


def are_transformed(inputs: Sequence[Any]) -> bool:
    """True for batches of a `vmap` around the call, and for tangents of forward-mode AD around it.

    Batches (also those of `is_grads_batched`) have no storage, and an operator in place may not
    store a batch into a tensor that is none. Tangents have no `out=` forms, and `detach` drops
    them. The captured graph is right for both.
    """
    if forward_ad._current_level >= 0:
        return True
    functorch = torch._C._functorch
    return any(
        functorch.is_functorch_wrapped_tensor(each) or functorch.is_legacy_batchedtensor(each)
        for each in inputs
        if isinstance(each, torch.Tensor)
    )
