"""Dtypes without kernels of their own: `uint4`, `float8_e4m3fn`, `bits8` and the like."""

from __future__ import annotations

import torch

# A type of the same size in which the bits can be compared and printed.
_AS_BITS: dict[torch.dtype, torch.dtype] = {
    getattr(torch, name): bits
    for names, bits in (
        ([f"{sign}int{count}" for sign in ("", "u") for count in range(1, 8)], torch.uint8),
        (["bits8", "bits1x8", "bits2x4", "bits4x2", "float4_e2m1fn_x2"], torch.uint8),
        (["bits16"], torch.int16),
    )
    for name in names
    if hasattr(torch, name)
}
# A type that represents each value exactly.
_AS_VALUES: dict[torch.dtype, torch.dtype] = {
    getattr(torch, name): torch.float32
    for name in (
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    )
    if hasattr(torch, name)
} | {torch.complex32: torch.complex64}


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that has kernels to compare and print, equal to this one where this one is equal.

    It is the tensor itself for most dtypes, and a view or a copy for the others.
    """
    if tensor.dtype in _AS_BITS:
        return tensor.view(_AS_BITS[tensor.dtype])
    return tensor.to(_AS_VALUES[tensor.dtype]) if tensor.dtype in _AS_VALUES else tensor
