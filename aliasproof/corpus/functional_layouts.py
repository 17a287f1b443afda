"""Layouts of the tensors that functionalization wraps, for the known bugs of custom operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a tensor, with the methods of a tensor. `base` is that of its base."""

    sizes: Any
    strides: Any
    offset: Any
    base: Layout | None = None

    def size(self) -> Any:
        return self.sizes

    def stride(self) -> Any:
        return self.strides

    def storage_offset(self) -> Any:
        return self.offset


def layout_of_value(tensor: Any, base: Layout | None = None) -> Layout:
    """The layout of the value that a functional tensor has now.

    Its own layout can be that of an earlier value: a write replaces the value of a base, and the
    functional op chooses the layout. Views are computed again from the new value.
    """
    if isinstance(tensor, FunctionalTensor):
        torch._functionalize_sync(tensor.elem)
        tensor = torch._from_functional_tensor(tensor.elem)
    return Layout(tensor.size(), tensor.stride(), tensor.storage_offset(), base)
