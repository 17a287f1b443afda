"""Floor division rounds the quotient, and eager does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import LOWERINGS, mends, run_in_eager
from aliasproof.ir.program import Storage

OP = torch.ops.aten.div.Tensor_mode


@mends(LOWERINGS, keys=(OP,))
def mended(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Eager's kernel divides: it subtracts `fmod(a, b)` first, as Python does.

    `div_mode` is `floor(a / b)`. In torch 2.13, it also differs where a number is infinite.
    """
    if kwargs.get("rounding_mode") == "floor" and args[0].get_dtype().is_floating_point:
        return run_in_eager(OP, *args, **kwargs)
    return original(*args, **kwargs)


PROGRAM = program_of(
    """
    v0 = aten.div.Tensor_mode(x0, x1, rounding_mode='floor')
    return (v0,)
    """,
    view(1),
    view(1),
)

BUG = KnownBug(
    "floor-of-quotient",
    "1 // 0.1 is 10, and 9 in eager: floor division rounds the quotient before the floor",
    "https://github.com/pytorch/pytorch/issues/197895",
    replace(PROGRAM, storages=(PROGRAM.storages[0], Storage(torch.float32, 1, ("0.1",)))),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "div", "div_", "floor_divide", "floor_divide_"),
    rank=750,
)
