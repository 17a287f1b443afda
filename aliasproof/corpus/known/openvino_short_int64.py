"""OpenVINO computes int64 numbers as int32."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import computes, exceeds
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Storage

PROGRAM = program_of(
    """
    v0 = aten.mul.Tensor(x0, x0)
    v1 = aten.add.Tensor(v0, x0)
    return (v1,)
    """,
    view(1, dtype=torch.int64),
)


# Some number of the program needs more.
TOO_LONG = computes(exceeds(31))

BUG = KnownBug(
    "openvino-short-int64",
    "OpenVINO on the CPU: int64 arithmetic keeps the lower 32 bits",
    "https://github.com/openvinotoolkit/openvino/issues/35838",
    replace(PROGRAM, storages=(Storage(torch.int64, 1, ("100000",)),)),
    ("openvino-model", "openvino-aot", "openvino"),
    ("2.13",),
    mark=Mark(("values", "inputs"), "wrong value|input ends wrong", TOO_LONG, reduced=True),
    rank=1290,
)
