"""OpenVINO truncates a quotient by a conversion to int32 and back."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Storage

DIVISIONS = ("div", "div_", "divide", "divide_", "trunc", "trunc_", "fix", "fix_")

PROGRAM = program_of(
    """
    v0 = aten.add.Scalar(x0, 1)
    v1 = aten.div.Tensor_mode(v0, x0, rounding_mode='trunc')
    return (v1,)
    """,
    view(1),
)


def _is_no_int32(made: ComputedCall) -> bool:
    floats = (y for y in made.results if y.is_floating_point())
    return any(bool((~(y.abs() < 2**31)).any()) for y in floats)


BUG = KnownBug(
    "openvino-truncates-to-int32",
    "OpenVINO: div with rounding_mode='trunc' of NaN is -2147483648",
    "",
    replace(PROGRAM, storages=(Storage(torch.float32, 1, ("nan",)),)),
    ("openvino-model", "openvino-aot", "openvino"),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        computes(_is_no_int32, *DIVISIONS),
        reduced=True,
    ),
    rank=1420,
)
