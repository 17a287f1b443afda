"""The translation of `amax` and `amin` to ONNX asks for a dimension, and their schema does not."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program


def of_all(program: Program) -> bool:
    """Whether the program takes the largest or smallest of all elements."""
    return any(
        call.op.split(".")[1] in ("amax", "amin") and len(call.args) == 1
        for call in program.instructions
    )


BUG = KnownBug(
    "amax-without-dimension",
    "torch.onnx.export raises for amax or amin without a dimension",
    "https://github.com/microsoft/onnxscript/pull/3035",
    program_of("v0 = aten.amax.default(x0)\nreturn (v0,)", view(2)),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(("errors",), "raises ConversionError", of_all),
    plausible=of_all,
    rank=1120,
)
