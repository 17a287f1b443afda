"""The ONNX exporter squeezes a dimension of more than one element, which eager leaves."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

SQUEEZES = ("squeeze", "squeeze_", "squeeze_copy")

# `Squeeze` of ONNX wants a dimension of one element; the translation asks no size.
BUG = KnownBug(
    "squeeze-of-many",
    "torch.onnx.export: x.squeeze(0) of a dimension of size 2 makes a model that cannot run",
    "https://github.com/pytorch/pytorch/issues/36796",
    program_of("v0 = aten.squeeze.dim(x0, 0)\nreturn (v0,)", view(2)),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("errors",), r"raises Fail.*Op \(Squeeze\)", lambda program: calls(program, *SQUEEZES)
    ),
    plausible=lambda program: calls(program, *SQUEEZES),
    rank=1320,
)
