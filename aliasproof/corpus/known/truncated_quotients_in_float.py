"""The ONNX exporter divides int64 numbers in float32 where the quotient is truncated."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import computes, exceeds
from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.ir.program import Storage

DIVISIONS = ("div", "div_", "divide", "divide_")

PROGRAM = program_of(
    "v0 = aten.div.Scalar_mode(x0, 7, rounding_mode='trunc')\nreturn (v0,)",
    view(1, dtype=torch.int64),
)

# Of `floor_divide`, that was mended (microsoft/onnxscript#2589).
BUG = KnownBug(
    "truncated-quotients-in-float",
    "torch.onnx.export: int64 division with rounding_mode='trunc' has the digits of float32",
    "https://github.com/microsoft/onnxscript/issues/2589",
    replace(PROGRAM, storages=(Storage(torch.int64, 1, (f"{2**60 + 1}",)),)),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        computes(exceeds(24), *DIVISIONS),
        reduced=True,
    ),
    plausible=lambda program: calls(program, *DIVISIONS),
    rank=1210,
)
