"""`any` of a uint8 tensor is bool in the model that `torch.onnx.export` makes."""

from __future__ import annotations

import torch

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view


def _of_uint8(made: ComputedCall) -> bool:
    return any(x.dtype == torch.uint8 for x in made.operands.values())


# All `aten_any` of onnxscript/function_libs/torch_lib/ops/core.py end with a cast to BOOL. The
# documentation of `torch.any` says uint8 for uint8.
BUG = KnownBug(
    "any-is-bool",
    "torch.onnx.export: any and all of a uint8 tensor are bool, and uint8 in eager",
    "",
    program_of("v0 = aten.any.default(x0)\nreturn (v0,)", view(2, dtype=torch.uint8)),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(("metadata",), "wrong dtype", computes(_of_uint8, "any", "all")),
    plausible=lambda program: calls(program, "any", "all"),
    rank=1130,
)
