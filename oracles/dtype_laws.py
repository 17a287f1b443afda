"""What an op gives whatever its operand contains: `ceil` of integers, a pad of no elements.

A compiler may leave such an op out. Laws of floating numbers are no part of this: `x * 0` is not 0
where `x` is infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import torch
from torch._ops import OpOverload

from aliasproof.oracles.calls import torch_name

# They give a whole number as it is, and integers and bools are whole and finite.
_ROUND = {"ceil", "floor", "round", "trunc", "fix", "nan_to_num"}
_ASK_FOR_SPECIAL_VALUES = {"isposinf", "isneginf", "isinf", "isnan"}


def gives_its_operand(op: OpOverload, given: Mapping[str, Any], result: torch.Tensor) -> bool:
    """True if the result is equal to `self` for all values."""
    operand = given.get("self")
    if _name(op) == "constant_pad_nd":
        return not any(given["pad"])
    rounds = _name(op) in _ROUND and not given.get("decimals")
    return rounds and _is_whole(operand) and operand.dtype == result.dtype


def gives_a_constant(op: OpOverload, given: Mapping[str, Any], result: torch.Tensor) -> bool:
    """True if the result is the same for all values."""
    operand = given.get("self")
    if not (_is_whole(operand) and _is_whole(result)):
        return False
    factors = [given[name] for name in ("other", "scalar", "scalars") if name in given]
    # `mul` of lists calls it `scalar` or `scalars`.
    by_zero = not any(isinstance(factor, torch.Tensor) for factor in factors) and factors == [0]
    return _name(op) in _ASK_FOR_SPECIAL_VALUES or (_name(op) == "mul" and by_zero)


def _name(op: OpOverload) -> str:
    return torch_name(op).removeprefix("_foreach_")


def _is_whole(value: Any) -> TypeGuard[torch.Tensor]:
    """True for a tensor of integers or bools."""
    is_tensor = isinstance(value, torch.Tensor)
    return is_tensor and not (value.is_floating_point() or value.is_complex())
