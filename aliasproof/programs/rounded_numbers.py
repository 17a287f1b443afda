"""Numbers among the operands of a call that a narrow dtype does not represent."""

from __future__ import annotations

import functools

import torch
from torch._ops import OpOverload

from aliasproof.programs.eager_call import EagerCall
from aliasproof.programs.fused_rounding import NARROW
from aliasproof.programs.narrow_dtypes import readable
from aliasproof.programs.rounding_tables import MOVES, rounding_name


def rounds_a_number(call: EagerCall) -> bool:
    """True if a kernel may round a number of the call to bfloat16 or float16 before it computes.

    Kernels for these dtypes compute in float32. Of two correct ones, one rounds the number first
    (`mul_.Scalar`), and one does not (`mul.Scalar`, for vectors). A 0-d tensor of another dtype is
    such a number too. A move stores the rounded number in any case.
    """
    tensors = [*call.only_read, *call.written]
    narrow = {tensor.dtype for tensor in tensors if tensor.dtype in NARROW}
    if not narrow or rounding_name(call.op) in MOVES:
        return False
    numbers = [call.arguments[name] for name in _number_arguments(call.op)]
    wider = [
        tensor
        for tensor in tensors
        if tensor.dim() == 0 and tensor.dtype not in narrow and not tensor.is_meta
    ]
    return any(
        not _representable(value, dtype)
        for value in (*_numbers_in(numbers), *(readable(tensor).item() for tensor in wider))
        for dtype in narrow
    )


@functools.cache
def _number_arguments(op: OpOverload) -> tuple[str, ...]:
    """The arguments that are operands: `Scalar` and `float`, but no sizes, dims or flags."""
    return tuple(
        argument.name
        for argument in op._schema.arguments
        if any(kind in str(argument.type) for kind in ("number", "float"))
    )


def _numbers_in(value: object) -> list[complex]:
    if isinstance(value, (list, tuple)):
        return [number for part in value for number in _numbers_in(part)]
    is_number = isinstance(value, (int, float, complex)) and not isinstance(value, bool)
    return [value] if is_number else []  # type: ignore[list-item]


def _representable(value: complex, dtype: torch.dtype) -> bool:
    """True if a number is the same in the dtype. NaN is."""
    parts = (value.real, value.imag)
    return all(
        part != part or torch.tensor(float(part), dtype=dtype).item() == part for part in parts
    )
