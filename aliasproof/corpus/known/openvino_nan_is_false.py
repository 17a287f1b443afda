"""OpenVINO takes NaN for False."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import computes, takes_nan_for_bool
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Storage

PROGRAM = program_of(
    """
    v0 = aten.gt.Scalar(x0, 0)
    v1 = aten._to_copy.default(v0, dtype=torch.float32)
    return (v1,)
    """,
    view(1),
)


# So `logical_not` of NaN is True; NaN >= 1 is True, too (#35927 of that tracker).
BUG = KnownBug(
    "openvino-nan-is-false",
    "OpenVINO: NaN compares as a number, and is False",
    "https://github.com/openvinotoolkit/openvino/issues/35932",
    replace(PROGRAM, storages=(Storage(torch.float32, 1, ("nan",)),)),
    ("openvino-model", "openvino-aot", "openvino"),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        computes(takes_nan_for_bool),
        reduced=True,
    ),
    rank=1300,
)
