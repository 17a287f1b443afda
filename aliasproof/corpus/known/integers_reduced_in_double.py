"""ONNX Runtime adds and multiplies int64 numbers as numbers of double precision."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import computes, exceeds
from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.ir.program import Storage

REDUCTIONS = ("sum", "prod", "mean", "nansum", "norm", "linalg_vector_norm", "trace")

PROGRAM = program_of("v0 = aten.sum.default(x0)\nreturn (v0,)", view(2, dtype=torch.int64))

# ReduceSum and ReduceProd of the CPU. The reference evaluator of ONNX is exact, as is CumSum.
BUG = KnownBug(
    "integers-reduced-in-double",
    "ONNX Runtime: sums and products of int64 lose digits above 2 ** 53, and saturate",
    "https://github.com/microsoft/onnxruntime/pull/28743",
    replace(PROGRAM, storages=(Storage(torch.int64, 2, (f"{2**62 + 1}", "1")),)),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        computes(exceeds(53), *REDUCTIONS),
        reduced=True,
    ),
    plausible=lambda program: calls(program, *REDUCTIONS),
    rank=1190,
)
