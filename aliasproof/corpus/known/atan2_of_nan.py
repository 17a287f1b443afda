"""The ONNX exporter divides for atan2, and takes a quotient that is NaN for 0."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Storage

PROGRAM = program_of("v0 = aten.atan2.default(x0, x0)\nreturn (v0,)", view(1))


def _has_no_slope(made: ComputedCall) -> bool:
    above, beside = made.argument(0), made.argument(1)
    if above is None or beside is None:
        return False
    both_zero = (above == 0) & (beside == 0)
    return bool((torch.div(above, beside).isnan() & ~both_zero).any())


# "Map NaN to 0 to match PyTorch behavior", says `_atan2` in
# onnxscript/function_libs/torch_lib/ops/core.py, for a case of two zeros (pytorch/pytorch#162570).
BUG = KnownBug(
    "atan2-of-nan",
    "torch.onnx.export: atan2 of NaN, and of two infinities, is 0",
    "https://github.com/microsoft/onnxscript/pull/2557",
    replace(PROGRAM, storages=(Storage(torch.float32, 1, ("inf",)),)),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        computes(_has_no_slope, "atan2", "atan2_", "arctan2", "arctan2_"),
        reduced=True,
    ),
    rank=1350,
)
