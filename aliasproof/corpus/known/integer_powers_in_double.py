"""ONNX Runtime computes powers of int64 numbers in double precision."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import computes, exceeds
from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.ir.program import Storage

POWERS = ("pow", "pow_", "float_power", "square", "square_")

PROGRAM = program_of("v0 = aten.pow.Tensor_Scalar(x0, 2)\nreturn (v0,)", view(1, dtype=torch.int64))

BUG = KnownBug(
    "integer-powers-in-double",
    "ONNX Runtime: the square of an int64 number loses digits above 2 ** 53",
    "",
    replace(PROGRAM, storages=(Storage(torch.int64, 1, (f"{2**30 + 1}",)),)),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        computes(exceeds(53), *POWERS),
        reduced=True,
    ),
    plausible=lambda program: calls(program, *POWERS),
    rank=1200,
)
