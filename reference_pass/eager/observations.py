"""Observed results of calls in eager, where fakes are wrong.

No table can prove that a fake kernel is right. `fake_corrections` has the known errors. All others
are observed in the first run of a graph (`backend/observed_run.py`), and noted here: the layouts of
the results of a call, by the layouts of its operands. From then on, the call has these layouts on
fakes, too, and the graph is made again.

A note is a fact about a kernel, so one table serves the whole process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.nested import leaves_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import facts


@dataclass(frozen=True, slots=True)
class NotedLayout:
    """The layout of a new tensor: sizes, strides and offset in elements, its storage in bytes."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    nbytes: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> NotedLayout:
        """The layout of a tensor without symbols."""
        nbytes = tensor.untyped_storage().nbytes()
        sizes, strides = tuple(tensor.shape), tensor.stride()
        return cls(sizes, strides, tensor.dtype, int(tensor.storage_offset()), nbytes)

    def new(self, like: torch.Tensor) -> torch.Tensor:
        """A new tensor of this layout, on the device of `like`."""
        memory = like.new_empty(self.nbytes // self.dtype.itemsize, dtype=self.dtype)
        return memory.as_strided(self.sizes, self.strides, self.offset)


_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NOTED: dict[object, dict[Any, tuple[NotedLayout, ...]]] = {}


def note(op: OpOverload, given: dict[str, Any], result: Any) -> bool:
    """Note the layouts of a call's results in eager; False if they are known, or are views."""
    is_view = any(returned.alias_info for returned in op._schema.returns)
    layouts, noted = tuple(map(NotedLayout.of, tensors_in(result))), _NOTED.setdefault(op, {})
    key = _key(given)
    if is_view or facts(op).writes or key is None or noted.get(key) == layouts:
        return False
    noted[key] = layouts
    return True


def is_noted(op: object) -> bool:
    """True if layouts are noted for some call of an operator."""
    return op in _NOTED


def noted_layouts(op: object, given: dict[str, Any]) -> tuple[NotedLayout, ...] | None:
    """The layouts of the tensors that a call returns, if they are noted."""
    return _NOTED[op].get(_key(given)) if op in _NOTED else None


def as_noted(op: object, given: dict[str, Any], value: Any) -> Any:
    """The result `value` of a call on fakes, with the layouts that are noted."""
    if (layouts := noted_layouts(op, given)) is None:
        return value
    following = iter(layouts)
    if isinstance(value, torch.Tensor):
        return next(following).new(value)
    return type(value)(
        next(following).new(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in value
    )


def _key(given: dict[str, Any]) -> Any:
    """The arguments of a call, by the layouts of the tensors among them; None with symbols."""
    if any(isinstance(number, _SYMBOLS) for leaf in leaves_in(given) for number in _numbers(leaf)):
        return None
    return tuple(
        (name, *map(_part, leaves_in(argument))) for name, argument in sorted(given.items())
    )


def _numbers(leaf: Any) -> tuple[Any, ...]:
    return (*leaf.shape, *leaf.stride()) if isinstance(leaf, torch.Tensor) else (leaf,)


def _part(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        lazy = (leaf.is_conj(), leaf.is_neg())
        return tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device, lazy
    # A layout may depend on an int. The type is part of the key, since 1.0 == 1 == True.
    return type(leaf), leaf if isinstance(leaf, (int, str, torch.dtype)) else None
