"""How the arguments of ops are drawn that give their first tensor other metadata.

Every drawer takes the `Draft` of the call so far and gives one argument, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.generators.draft import Draft
from aliasproof.generators.tensor_arguments import tensor_like
from aliasproof.ir.program import Argument
from aliasproof.ir.regions import capacity, dense_strides, reach


def any_tensor(draft: Draft) -> Argument:
    """A tensor of any dtype and shape."""
    return tensor_like(draft, lambda tensor: True)


def tensor_of_own_dtype(draft: Draft) -> Argument:
    """A tensor of the first tensor's dtype, of any shape."""
    dtype = draft.self.dtype
    return tensor_like(draft, lambda tensor: tensor.dtype == dtype)


# `set_` looks at the storage of its source. So the source is drawn last, and has room for the rest.


def few_sizes(draft: Draft) -> Argument:
    """The sizes of the first tensor, reversed or not, or other small ones."""
    shape = tuple(draft.self.shape)
    return draft.pick.one((shape, shape[::-1], (draft.self.numel(),), (2,), (1, 2), (2, 2), ()))


def dense_or_reversed_strides(draft: Draft) -> Argument:
    """Dense strides for the sizes drawn, in either order of dimensions."""
    sizes = draft.elements("size")
    return draft.pick.one((dense_strides(sizes), dense_strides(sizes[::-1])[::-1]))


def small_offset(draft: Draft) -> Argument:
    """The start of the storage, or an element behind it."""
    return draft.pick.integer(0, 2)


def source_with_room(draft: Draft) -> Argument:
    """A tensor of the first tensor's dtype, whose storage has room for the layout drawn."""
    needed = reach(draft.elements("size"), draft.elements("stride"))
    needed, dtype = needed + draft.integer("storage_offset"), draft.self.dtype
    return tensor_like(draft, lambda t: t.dtype == dtype and capacity(t) >= needed)


def new_sizes(draft: Draft) -> Argument:
    """Other sizes: fewer elements, as many, or more, which are then uninitialised."""
    shape: torch.Size = draft.self.shape
    count = draft.self.numel()
    sizes: list[tuple[int, ...]] = [
        tuple(shape[::-1]),
        (count,),
        (max(count - 1, 0),),
        (min(count, 2),),
        (*shape, 1),
        (count + 1,),
    ]
    return draft.pick.one(sizes)
