"""The ATen calls that a function makes, in a form that two functions can be compared by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator; its arguments as text, with tensors named by storage and layout."""

    op: str
    arguments: str


@dataclass
class _Record(TorchDispatchMode):
    """Records calls while it is active. Storages are numbered in the order in which they appear."""

    calls: list[Call] = field(default_factory=list)
    storages: list[torch.UntypedStorage] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        self.calls.append(Call(str(func), str(tree_map(self.description, (args, kwargs)))))
        returned = func(*args, **kwargs)
        tree_map(self.description, returned)  # new storages get their numbers
        return returned

    def description(self, value: object) -> object:
        """A tensor as its storage's number and its layout; anything else as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        storage = value.untyped_storage()
        # Recorded storages stay alive, so none has the address of an earlier one.
        numbers = [known._cdata for known in self.storages]
        if storage._cdata not in numbers:
            self.storages.append(storage)
            numbers.append(storage._cdata)
        layout = tuple(value.shape), value.stride(), value.storage_offset()
        return numbers.index(storage._cdata), value.dtype, *layout


def recorded_calls(function: Callable[[], object], inputs: Sequence[torch.Tensor]) -> list[Call]:
    """The ATen calls of the function, in order, and as the last entry what it returned.

    `inputs` are the tensors that it uses; their storages come first in the numbering.
    """
    record = _Record()
    tree_map(record.description, list(inputs))
    with record:
        returned = function()
    # A list and a tuple of the same tensors count as the same result.
    tensors = [returned] if isinstance(returned, torch.Tensor) else list(returned or ())  # type: ignore[call-overload]
    return [*record.calls, Call("return", str(tree_map(record.description, tensors)))]
