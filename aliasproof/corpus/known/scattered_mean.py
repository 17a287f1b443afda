"""The ONNX exporter writes the last value where `scatter_reduce` should take a mean."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program


def takes_mean(program: Program) -> bool:
    """Whether a call reduces by a mean while it scatters."""
    return any("mean" in (*call.args, *dict(call.kwargs).values()) for call in program.instructions)


# `aten_scatter_reduce` in onnxscript/function_libs/torch_lib/ops/core.py has "mean": "none".
BUG = KnownBug(
    "scattered-mean",
    "torch.onnx.export: scatter_reduce with reduce='mean' stores the last source, and no mean",
    "https://github.com/onnx/onnx/issues/5100",
    program_of(
        """
        v0 = aten.scatter_reduce.two(x0, 0, x1, x2, 'mean')
        return (v0,)
        """,
        view(1),
        view(1, dtype=torch.int64),
        view(1),
    ),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(("values", "inputs"), "wrong value|input ends wrong", takes_mean, reduced=True),
    plausible=takes_mean,
    rank=1220,
)
