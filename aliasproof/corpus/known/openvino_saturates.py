"""OpenVINO's arithmetic of short integers saturates, and eager's wraps around."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import SHORT, computes, wraps
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program, Storage

PROGRAM = program_of(
    """
    v0 = aten.add.Tensor(x0, x0)
    v1 = aten.add.Tensor(v0, x0)
    return (v1,)
    """,
    view(1, dtype=torch.int8),
)


def has_short_integers(program: Program) -> bool:
    """Whether an input or a call names a dtype of integers with 8 or 16 bits."""
    dtypes = {view.dtype for view in program.inputs}
    for call in program.instructions:
        dtypes |= {it for it in dict(call.kwargs).values() if isinstance(it, torch.dtype)}
    return any(dtype in SHORT for dtype in dtypes)


BUG = KnownBug(
    "openvino-saturates",
    "OpenVINO: sums and products of int8, uint8 and int16 saturate",
    "https://github.com/openvinotoolkit/openvino/issues/35646",
    replace(PROGRAM, storages=(Storage(torch.int8, 1, ("100",)),)),
    ("openvino-model", "openvino-aot", "openvino"),
    ("2.13",),
    mark=Mark(("values", "inputs"), "wrong value|input ends wrong", computes(wraps), reduced=True),
    plausible=has_short_integers,
    rank=1240,
)
