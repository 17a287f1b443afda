"""What a copy must leave in memory that overlaps itself, and whether it is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.programs.narrow_dtypes import readable
from aliasproof.programs.regions import Region, overlaps_itself


def value_stored(op: OpOverload, arguments: Mapping[str, Any]) -> torch.Tensor | None:
    """What a copy into a region that overlaps itself must leave there, if it is to be defined.

    None for other calls.
    """
    if op is not torch.ops.aten.copy_.default or not overlaps_itself(Region.of(arguments["self"])):
        return None
    target, source = arguments["self"], arguments["src"]
    expected: torch.Tensor = source.to(target.dtype).expand(target.shape).clone()
    return expected


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if element by element both tensors are equal, or both are NaN. -0.0 is not 0.0."""
    one, other = readable(one), readable(other)
    if one.is_complex():
        one, other = (torch.view_as_real(tensor.resolve_conj()) for tensor in (one, other))
    equal = one == other
    if one.is_floating_point():
        equal &= one.signbit() == other.signbit()
    return bool((equal | ((one != one) & (other != other))).all())
