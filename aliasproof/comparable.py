"""A user's function in a form that can be compared: captured tensors in, leaves out.

Targets return tensors, numbers and None unchanged. Most other values that eager can return, targets
change or drop without an error.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree

from aliasproof.captured_tensors import captured_names, lift
from targets.target import Function

_PLAIN = (bool, int, float, complex, str, type(None))
# Values that are equal in two runs if their texts are.
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
class Leaves:
    """A function that returns the leaves of what another function returns.

    It takes dataclasses apart, and turns dtypes and the like into text. `opaque` collects the types
    of leaves that it cannot compare; such a leaf becomes the name of its type.
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
            # Pytree takes a dataclass as a leaf, and two runs return two unequal objects.
            elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
                yield from self._leaves(
                    [getattr(leaf, member.name) for member in dataclasses.fields(leaf)]
                )
            else:
                yield self._mark(type(leaf).__name__)

    def _mark(self, kind: str) -> str:
        # Equal text for both runs: the leaf is not compared, and the note says so.
        self.opaque.add(kind)
        return f"<{kind}>"


def _has_storage(tensor: torch.Tensor) -> bool:
    plain = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized
    return plain and tensor.device.type != "meta"


@dataclass(frozen=True, slots=True)
class Comparable:
    """A function of tensors that returns leaves, and its inputs.

    The last `len(captured)` inputs are the captured tensors; `captured` has their names.
    """

    function: Leaves
    inputs: tuple[torch.Tensor, ...]
    captured: tuple[str, ...]

    @classmethod
    def of(cls, function: Function, inputs: Sequence[torch.Tensor]) -> Comparable:
        """Lift the captured tensors of a function, and flatten what it returns."""
        lifted = lift(function, inputs)
        if lifted is None:
            return cls(Leaves(function), tuple(inputs), ())
        names = tuple(captured_names(lifted)) if lifted.captured else ()
        return cls(Leaves(lifted), (*inputs, *lifted.captured), names)

    def captured_inputs(self) -> list[tuple[int, str]]:
        """The index and the name of each input that is a captured tensor."""
        return list(enumerate(self.captured, len(self.inputs) - len(self.captured)))
