"""ONNX wants as many updates as indices, and `scatter` takes a larger source."""

from __future__ import annotations

import torch

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view


def _takes_more_than_it_stores(made: ComputedCall) -> bool:
    index, source = made.argument(2), made.argument(3)
    return index is not None and source is not None and index.shape != source.shape


SCATTERS = ("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce")

# `ScatterElements` says "indices" and "updates" have one shape; the exporter cuts no source.
BUG = KnownBug(
    "source-larger-than-index",
    "torch.onnx.export: scatter with a source larger than its index makes a model that cannot run",
    "https://github.com/onnx/onnx/issues/4672",
    program_of(
        "v0 = aten.scatter.src(x0, 0, x1, x2)\nreturn (v0,)",
        view(2),
        view(1, dtype=torch.int64),
        view(2),
    ),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("errors",),
        "raises (InvalidArgument|Fail).*ScatterElements",
        computes(_takes_more_than_it_stores, *SCATTERS),
    ),
    plausible=lambda program: calls(program, *SCATTERS),
    rank=2216,
)
