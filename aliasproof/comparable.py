"""What a user's function returns, in a form in which two runs can be compared leaf by leaf.

Targets return tensors, numbers and None as they are, and refuse most else that eager returns with a
straight face.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree

from targets.target import Function

_PLAIN = (bool, int, float, complex, str, type(None))
_NAMED = (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    enum.Enum,
    bytes,
    range,
    slice,
)


@dataclass(slots=True)
class Comparable:
    """A function that returns the leaves of what another returns.

    Dataclasses are taken apart, dtypes and their like become text. `opaque` names the types of
    leaves that cannot be looked into, as far as calls have shown any; in their place stands the
    name of the type.
    """

    function: Function
    opaque: set[str] = field(default_factory=set)

    def __call__(self, *tensors: torch.Tensor) -> list[object]:
        return list(self._leaves(self.function(*tensors)))

    def _leaves(self, value: object) -> Iterator[object]:
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                yield (
                    leaf
                    if _has_storage(leaf)
                    else self._mark(f"tensor of layout {leaf.layout} on {leaf.device.type}")
                )
            elif isinstance(leaf, _PLAIN):
                yield leaf
            elif isinstance(leaf, _NAMED):
                yield str(leaf)
            elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
                yield from self._leaves(
                    [getattr(leaf, each.name) for each in dataclasses.fields(leaf)]
                )
            else:
                yield self._mark(type(leaf).__name__)

    def _mark(self, kind: str) -> str:
        self.opaque.add(kind)
        return f"<{kind}>"


def _has_storage(tensor: torch.Tensor) -> bool:
    plain = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized
    return plain and tensor.device.type != "meta"
