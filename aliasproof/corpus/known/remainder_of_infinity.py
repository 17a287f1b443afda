"""The vectorised remainder for an infinite divisor is nan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import LOWERINGS, mends, run_in_eager
from aliasproof.ir.program import Storage

OP = torch.ops.aten.remainder.Tensor


@mends(LOWERINGS, keys=(OP,))
def mended(original: Any, *args: Any) -> Any:
    """Eager's kernel finds the remainder, from `fmod(a, b)`.

    `CppVecOverrides.remainder` is `a - floor(a / b) * b`, and `0 * inf` is nan. The code without
    vectors is right.
    """
    if any(operand.get_dtype().is_floating_point for operand in args):
        return run_in_eager(OP, *args)
    return original(*args)


PROGRAM = program_of(
    """
    v0 = aten.remainder.Tensor(x0, x1)
    return (v0,)
    """,
    view(17),
    view(17),
)

BUG = KnownBug(
    "remainder-of-infinity",
    "1 % inf is nan in vectorised code, and 1 in eager",
    "",
    replace(PROGRAM, storages=(PROGRAM.storages[0], Storage(torch.float32, 17, ("inf",)))),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "remainder", "remainder_"),
    vector_bits=(256, 512),
    rank=740,
)
