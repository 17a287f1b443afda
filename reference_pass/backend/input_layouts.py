"""The layouts of the inputs of a call, as the key of what is compiled for it.

A compiled graph is a function of such a key only: the passes run on fakes that are made from the
key, so they see no property of the inputs that is not in it.

A key has only the properties on which a graph depends (`Detail`). Which inputs share a storage
matters to a graph that writes one of them; where they are in it seldom does. Then only their
distance is in the key, and the fakes have an unlikely offset in a larger storage. The passes'
result is right for all offsets: 15 slices of a data set are one key.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.autograd import forward_ad

from aliasproof.reference_pass.calls.copied_operands import view_in
from aliasproof.reference_pass.calls.fake_inputs import refuse_without_regions


class Detail(enum.IntEnum):
    """The properties on which a graph depends, beside sizes, strides and dtypes of its inputs."""

    SIZES = 0  # nothing else
    SHARING = 1  # which inputs share a storage, and their distance
    LOCATIONS = 2  # where each input is in its storage, and the size of the storage


class OffsetInStorage(NamedTuple):
    """Where a tensor is: its offset in elements, and the bytes of its storage."""

    offset: int | torch.SymInt
    nbytes: int | torch.SymInt


class InputLayout(NamedTuple):
    """The layout of one input. `location` and `distance` are None if nothing depends on them.

    `storage` numbers the storages of the inputs in order of first use: addresses differ from call
    to call. `distance` is that in bytes between all inputs on one storage. `lazy` are the lazy
    conjugate and negative bits. Composites may read `requires_grad`. If an input is not a leaf, its
    gradient flows on into its history, unless the graph detaches it.
    """

    storage: int
    location: OffsetInStorage | None
    distance: int | None
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    lazy: tuple[bool, bool]
    requires_grad: bool
    is_leaf: bool


def input_layouts(
    inputs: Sequence[Any],
    attributes: Iterable[torch.Tensor],
    detail: Detail,
    *,
    graded: bool = True,
) -> tuple[Any, ...]:
    """The layout of each tensor among the inputs, and the type of each other one.

    The attributes of a graph are inputs, too: an input may share a storage with one of them. With
    `graded`, a layout says whether the input requires a gradient.
    """
    storages = [_storage(value) for value in inputs]
    if detail is Detail.SIZES:  # each storage counts as another one
        tensors = [index for index, storage in enumerate(storages) if storage is not None]
        places = _Places({index: number for number, index in enumerate(tensors)}, set(), {})
    else:
        places = _places(inputs, storages, attributes)
    layouts: list[Any] = []
    for index, (value, storage) in enumerate(zip(inputs, storages, strict=True)):
        if storage is None:
            layouts.append(type(value))
            continue
        nbytes = storage.nbytes()
        # A copy of the whole storage raises if the storage ends with a part of an element.
        partial = not value._has_symbolic_sizes_strides and nbytes % value.itemsize != 0
        is_located = detail is Detail.LOCATIONS or partial or index in places.located
        layouts.append(
            InputLayout(
                places.numbers[index],
                OffsetInStorage(value.storage_offset(), nbytes) if is_located else None,
                None if is_located else places.distances.get(index),
                value.shape,
                value.stride(),
                value.dtype,
                value.device,
                (value.is_conj(), value.is_neg()),
                graded and value.requires_grad,
                not graded or value.is_leaf,
            )
        )
    return tuple(layouts)


def are_apart(inputs: Sequence[Any], attributes: Iterable[torch.Tensor]) -> bool:
    """True if no two inputs share a storage, and none shares one with an attribute."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    storages = {tensor.untyped_storage()._cdata for tensor in tensors}
    return len(storages) == len(tensors) and not any(
        tensor.untyped_storage()._cdata in storages for tensor in attributes
    )


def has_places(layouts: Iterable[Any]) -> bool:
    """True if the layouts have the location of an input."""
    tensors = [layout for layout in layouts if isinstance(layout, InputLayout)]
    return any((layout.location, layout.distance) != (None, None) for layout in tensors)


def shares_with_attribute(layouts: Iterable[Any]) -> bool:
    """True if an input shares memory with an attribute, which the passes do not see."""
    return any(isinstance(layout, InputLayout) and layout.storage < 0 for layout in layouts)


class _Places(NamedTuple):
    """By index of the input: the number of its storage, whether it is located, its distance."""

    numbers: dict[int, int]
    located: set[int]
    distances: dict[int, int]


# The loops are short, since they run at each call: a step of an optimizer has hundreds of inputs.


def _storage(value: Any) -> torch.UntypedStorage | None:
    """The storage of a tensor; None for another input. Raises `Refused` if it has none."""
    if not isinstance(value, torch.Tensor):
        return None
    if value.layout is not torch.strided:
        refuse_without_regions(value)
    return value.untyped_storage()


def _places(
    inputs: Sequence[Any],
    storages: Sequence[torch.UntypedStorage | None],
    attributes: Iterable[torch.Tensor],
) -> _Places:
    """The locations of inputs that share a storage with others, or with attributes of the graph."""
    # Keys are addresses of storages; those of attributes have negative numbers.
    own: dict[int, int] = {}
    for tensor in attributes:
        own.setdefault(tensor.untyped_storage()._cdata, -1 - len(own))
    known: dict[int, int] = {}
    together: dict[int, list[int]] = {}
    for index, storage in enumerate(storages):
        if storage is not None:
            number = own.get(storage._cdata)
            if number is None:
                number = known.setdefault(storage._cdata, len(known))
            together.setdefault(number, []).append(index)
    located: set[int] = set()
    distances: dict[int, int] = {}
    numbers = {index: number for number, group in together.items() for index in group}
    for number, group in together.items():
        if len(group) == 1 and number >= 0:
            continue
        offsets = [inputs[index].storage_offset() * inputs[index].itemsize for index in group]
        if number < 0 or any(isinstance(x, torch.SymInt) for x in offsets):
            located.update(group)
            continue
        # From the first one, rounded down to the largest element size: this keeps the alignments.
        start = offsets[0] - offsets[0] % max(inputs[index].itemsize for index in group)
        distances |= {index: x - start for index, x in zip(group, offsets, strict=True)}
    return _Places(numbers, located, distances)


# --- fakes ----------------------------------------------------------------------------------------

# No program has such sizes, so numbers that are equal by chance for one offset are not equal here.
# Counted in elements, and a multiple of all element sizes.
_SOME_OFFSET = 16 * 7919
_SOME_MORE = 16 * 6007
# In bytes: the other inputs on a storage may come before the first one.
_SOME_BYTES = 16 * 7919 * 10**8


def fakes_of(layouts: Sequence[Any], values: Sequence[Any], mode: FakeTensorMode) -> list[Any]:
    """New fake tensors with these layouts, and the given values for inputs that are not tensors.

    To autograd they are not views. Fakes on one storage share its version counter, so that autograd
    refuses to use a tensor that one of them saved and another one has overwritten.
    """
    memories = _memories(layouts)
    with unset_fake_temporarily(), torch.no_grad():
        return [
            _fake(layout, memories, mode) if isinstance(layout, InputLayout) else value
            for layout, value in zip(layouts, values, strict=True)
        ]


def _memories(layouts: Sequence[Any]) -> dict[int, torch.Tensor]:
    """The storages, by number, of inputs that have a distance; the first input is far inside."""
    ends: dict[int, int] = {}
    for layout in layouts:
        if isinstance(layout, InputLayout) and layout.distance is not None:
            end = layout.distance + _elements(layout) * layout.dtype.itemsize
            ends[layout.storage] = max(end, ends.get(layout.storage, 0))
    return {
        number: torch.empty(_SOME_BYTES + end + _SOME_MORE, dtype=torch.uint8, device="meta")
        for number, end in ends.items()
    }


def _fake(layout: InputLayout, memories: dict[int, torch.Tensor], mode: FakeTensorMode) -> Any:
    refuse_without_regions(layout.dtype)
    # Made on meta tensors: a call on fakes takes as long as ten calls on these.
    if layout.distance is not None:
        offset = (_SOME_BYTES + layout.distance) // layout.dtype.itemsize
        memory = memories[layout.storage]
        meta = view_in(memory, layout.dtype, layout.sizes, layout.strides, offset)
    elif layout.location is None:
        count = _SOME_OFFSET + _elements(layout) + _SOME_MORE
        memory = torch.empty(count, dtype=layout.dtype, device="meta")
        meta = memory.as_strided(layout.sizes, layout.strides, _SOME_OFFSET)
    else:
        start, nbytes = layout.location
        if layout.storage not in memories:
            memories[layout.storage] = torch.empty(nbytes, dtype=torch.uint8, device="meta")
        meta = view_in(memories[layout.storage], layout.dtype, layout.sizes, layout.strides, start)
    conj, neg = layout.lazy
    meta = meta.conj() if conj else meta
    meta = torch._neg_view(meta) if neg else meta
    fake = FakeTensor(mode, meta, layout.device).requires_grad_(layout.requires_grad)
    if layout.is_leaf:
        return fake
    with torch.enable_grad():
        return _Computed.apply(fake)


class _Computed(torch.autograd.Function):
    """The same tensor as the result of a call, not as a view."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def _elements(layout: InputLayout) -> int:
    """The number of elements of the storage from the first one of a tensor to its last one."""
    if 0 in layout.sizes:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(layout.sizes, layout.strides, strict=True))


# --- transformed inputs ---------------------------------------------------------------------------


def are_transformed(inputs: Sequence[Any]) -> bool:
    """True for batches of a `vmap` around the call, and for tangents of forward-mode AD around it.

    Batches (also those of `is_grads_batched`) have no storage, and an in-place operator may not
    store a batch into a tensor that is not one. Tangents have no `out=` forms, and `detach` drops
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
