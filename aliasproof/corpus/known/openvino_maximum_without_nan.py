"""OpenVINO takes the other number where one is NaN."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import computes, reads_nan
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Storage

CHOICES = (
    "relu",
    "relu_",
    "relu6",
    "clamp",
    "clamp_",
    "clamp_min",
    "clamp_max",
    "maximum",
    "minimum",
    "hardtanh",
)

PROGRAM = program_of("v0 = aten.relu.default(x0)\nreturn (v0,)", view(1))

BUG = KnownBug(
    "openvino-maximum-without-nan",
    "OpenVINO: relu, clamp and maximum of NaN are a number",
    "https://github.com/openvinotoolkit/openvino/issues/35649",
    replace(PROGRAM, storages=(Storage(torch.float32, 1, ("nan",)),)),
    ("openvino-model",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        computes(reads_nan, *CHOICES),
        reduced=True,
    ),
    rank=1390,
)
