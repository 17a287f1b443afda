"""ONNX Runtime leaves out NaN in the largest of all elements, or does not, by their number."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import computes, reads_nan
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Storage

EXTREMES = ("amax", "amin", "aminmax", "max", "min")

PROGRAM = program_of("v0 = aten.amax.default(x0, [0])\nreturn (v0,)", view(2))

BUG = KnownBug(
    "maximum-without-nan",
    "ONNX Runtime: ReduceMax and ReduceMin of numbers with NaN may be a number",
    "https://github.com/microsoft/onnxruntime/issues/10514",
    replace(PROGRAM, storages=(Storage(torch.float32, 2, ("1", "nan")),)),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        computes(reads_nan, *EXTREMES),
        reduced=True,
    ),
    rank=1360,
)
