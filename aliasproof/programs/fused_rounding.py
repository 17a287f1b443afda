"""`FusedRounding`: which data depend on whether bfloat16 and float16 results are rounded at once.

Eager computes such an op in float32 and rounds its result. A compiler that fuses it with the next
op may leave that out, so the next op reads more digits than in eager. Only ops whose results do
not fit the narrow dtype matter: small integers are the same with and without rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import tree_map

from aliasproof.programs.eager_call import EagerCall, tensors_in
from aliasproof.programs.schemas import Kind
from aliasproof.programs.storage_set import StorageSet

NARROW = (torch.bfloat16, torch.float16)


@dataclass(slots=True)
class FusedRounding:
    """Which storages have such data, followed from call to call.

    - `rounded`: an op lost digits when it rounded its result to a narrow dtype.
    - `differs`: an op read such a result, so it may have read the digits that eager lost.
    """

    rounded: StorageSet = field(default_factory=StorageSet)
    differs: StorageSet = field(default_factory=StorageSet)
    # What the call under way writes and returns without rounding; empty if it does not round.
    _unrounded: list[torch.Tensor] = field(default_factory=list)

    def before(self, call: EagerCall) -> None:
        """Look at a call that is about to run."""
        self._unrounded = _without_rounding(call)

    def note(self, call: EagerCall, made: Sequence[torch.Tensor], *, moved: bool) -> None:
        """Follow one call: `made` are the tensors that it wrote, and those that it returned.

        `moved` says that the op passes on what it reads as it is.
        """
        if call.facts.kind is Kind.VIEW:
            return
        rounded, differs = (kept.any(call.read()) for kept in (self.rounded, self.differs))
        for tensor in made:
            # What is only moved to memory of the narrow dtype is rounded there after all.
            if rounded and moved and tensor.dtype in NARROW:
                self.rounded.add(tensor)
            elif rounded:
                self.differs.add(tensor)
            if differs:
                self.differs.add(tensor)
        for tensor, exact in zip(made, self._unrounded, strict=False):
            if tensor.dtype in NARROW and not _equal(tensor.to(torch.float32), exact):
                self.rounded.add(tensor)


def _without_rounding(call: EagerCall) -> list[torch.Tensor]:
    """What a call writes and returns if narrow operands and results are float32."""
    dtypes = {value for value in call.arguments.values() if isinstance(value, torch.dtype)}
    dtypes |= {tensor.dtype for tensor in (*call.only_read, *call.written)}
    # A random op draws once, in eager.
    if call.facts.random or call.facts.kind is Kind.VIEW or not dtypes.intersection(NARROW):
        return []
    given = {name: value for name, value in call.arguments.items() if value is not None}
    wide = tree_map(_wide, given)
    try:
        result = call.op(**wide)
    except RuntimeError:  # eager will raise as well, or has no such kernel
        return []
    writes = call.facts.writes
    names = [
        argument.name for index, argument in enumerate(call.op._schema.arguments) if index in writes
    ]
    written = [tensor for name in names for tensor in tensors_in(wide.get(name))]
    return [*written, *tensors_in(result)]


def _wide(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.to(torch.float32) if value.dtype in NARROW else value.clone()
    return torch.float32 if value in NARROW else value


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether all elements are equal; NaN equals NaN."""
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())
