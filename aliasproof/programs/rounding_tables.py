"""Which ops round, and how, by the name that all forms of an op share (`op_properties.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.programs.custom_operators import NAMESPACE
from aliasproof.programs.op_properties import KernelTrait, names_with


def moves(op: OpOverload, tensors: Sequence[torch.Tensor]) -> bool:
    """True if all bits of what the op stores come from one operand, or are a constant."""
    numbers = {
        tensor.dtype for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()
    }
    # A lazy conjugate or negative bit is resolved on the way, which may change the sign of a NaN.
    lazy = any(tensor.is_conj() or tensor.is_neg() for tensor in tensors)
    name = rounding_name(op)
    if name in CHANGES_NANS_IN_SHORT_DTYPES and numbers & {torch.bfloat16, torch.float16}:
        return False
    return name in MOVES and len(numbers) <= 1 and not lazy


def rounds_alike(op: OpOverload, tensors: Sequence[torch.Tensor]) -> bool:
    """True if every kernel for the op must round to the same bits.

    That holds for moves, comparisons and single IEEE operations. Kernels differ by a unit in the
    last place where they may sum in another order, or fuse a multiplication with an addition (FMA).
    A complex product and an addition with a factor (`alpha`) allow that.
    """
    if op.namespace == NAMESPACE:  # they copy and add, whatever their names are
        return True
    rounding = [tensor for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()]
    name = rounding_name(op)
    if name in ONE_ROUNDING:
        return not any(tensor.is_complex() for tensor in rounding)
    # An op without a row may round in any way, so its values are compared with a tolerance.
    return name in NO_ROUNDING or not rounding


def rounds_again(arguments: Mapping[str, Any]) -> bool:
    """True if the arguments of a call make it add or multiply, beside what its name says."""
    # A factor of 1 or -1 adds no rounding.
    factors = (arguments.get("alpha"), arguments.get("beta"))
    return (
        any(factor not in (None, 0, 1, -1) for factor in factors)
        or bool(arguments.get("accumulate"))
        or arguments.get("reduce") in ("sum", "prod", "mean", "add", "multiply")
        or arguments.get("decimals") not in (None, 0)
    )


def rounding_name(op: OpOverload) -> str:
    """The name of an op in the table of properties; all its overloads and forms share it."""
    name: str = op.overloadpacket.__name__
    return name.removeprefix("_foreach_").rstrip("_")


ONE_ROUNDING = names_with(KernelTrait.ONCE)
MOVES = names_with(KernelTrait.MOVES)
NO_ROUNDING = names_with(KernelTrait.MOVES | KernelTrait.EXACT)
ANY_ZERO = names_with(KernelTrait.ANY_ZERO)
ADDS_IN_ANY_ORDER = names_with(KernelTrait.ADDS_IN_ANY_ORDER)
CANCELS_IN_SHORT_DTYPES = names_with(KernelTrait.CANCELS_IN_SHORT_DTYPES)
CHANGES_NANS_IN_SHORT_DTYPES = names_with(KernelTrait.CHANGES_NANS_IN_SHORT_DTYPES)
MULTIPLIES = names_with(KernelTrait.MULTIPLIES | KernelTrait.ADDS_IN_ANY_ORDER)
OVERFLOWS_EARLY = names_with(KernelTrait.OVERFLOWS_EARLY)
MAY_DROP_NAN = names_with(KernelTrait.MAY_DROP_NAN)
MAY_SKIP_ZEROS = names_with(KernelTrait.MAY_SKIP_ZEROS)
READS_ZERO_SIGN = names_with(KernelTrait.READS_ZERO_SIGN)
JUMPS = names_with(KernelTrait.JUMPS)
