"""The ONNX exporter translates `masked_scatter` of a 0-d tensor to ScatterND of one."""

from __future__ import annotations

import torch

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

SCATTERS = ("masked_scatter", "masked_scatter_")


def _of_scalars(made: ComputedCall) -> bool:
    operand, mask = made.argument(0), made.argument(1)
    return operand is not None and mask is not None and operand.dim() == mask.dim() == 0


# ScatterND wants a rank of at least 1, by its definition; `aten_masked_scatter` in
# onnxscript/function_libs/torch_lib/ops/core.py gives it what it got.
BUG = KnownBug(
    "masked-scatter-of-scalar",
    "torch.onnx.export: masked_scatter of a 0-d tensor makes a model that cannot run",
    "",
    program_of(
        "v0 = aten.masked_scatter.default(x0, x1, x2)\nreturn (v0,)",
        view(),
        view(dtype=torch.bool),
        view(),
    ),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("errors",), "raises (InvalidArgument|Fail).*ScatterND", computes(_of_scalars, *SCATTERS)
    ),
    rank=1330,
)
