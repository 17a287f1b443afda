"""Vectorised minima and maxima of 8-bit integers count lanes that hold no element."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view

NARROW = (torch.uint8, torch.int8)


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """8-bit integers are not vectorised.

    A vector holds as many of them as a register, and a step loads as many as float32 would need.
    The other lanes are zero, and the reduction at the end reads them.
    """
    from torch._inductor.codegen import cpp  # noqa: PLC0415 - takes two seconds

    before = list(cpp.VECTORIZABLE_DTYPES)
    cpp.VECTORIZABLE_DTYPES[:] = [dtype for dtype in before if dtype not in NARROW]
    try:
        yield
    finally:
        cpp.VECTORIZABLE_DTYPES[:] = before


BUG = KnownBug(
    "narrow-minimum",
    "amin of 16 or more positive 8-bit integers is 0, and amax of negative ones too",
    "https://github.com/pytorch/pytorch/issues/191499",
    program_of(
        """
        v0 = aten.amin.default(x0, [0])
        return (v0,)
        """,
        view(17, dtype=torch.uint8),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "amin", "amax", "min", "max", "argmin", "argmax"),
    vector_bits=(512,),
    rank=720,
)
