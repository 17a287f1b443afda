"""`torch.onnx.export` casts the operand of cumsum to float32, and the result is not cast back."""

from __future__ import annotations

import torch

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view


def _of_halves(made: ComputedCall) -> bool:
    return any(x.dtype in (torch.float16, torch.bfloat16) for x in made.operands.values())


# The pass of type promotion takes the dtype in which eager computes for that of the result
# (torch/onnx/_internal/fx/passes/type_promotion.py).
BUG = KnownBug(
    "cumsum-in-float32",
    "torch.onnx.export: cumsum of float16 has dtype float32",
    "",
    program_of("v0 = aten.cumsum.default(x0, 0)\nreturn (v0,)", view(2, dtype=torch.float16)),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(("metadata",), "wrong dtype", computes(_of_halves, "cumsum", "cumprod")),
    rank=1340,
)
