"""OpenVINO converts no program that returns one tensor twice."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program


def returns_twice(program: Program) -> bool:
    """Whether a value is returned twice, or may be under another name."""
    return len(program.outputs) > 1


# `TranslateSession` in src/frontends/pytorch/src/translate_session.cpp takes the name of an output
# for a number.
BUG = KnownBug(
    "openvino-output-twice",
    "openvino.convert_model raises 'Tensor name is not a number' where a tensor is returned twice",
    "",
    program_of("v0 = aten.add.Tensor(x0, x0)\nreturn v0, v0", view(2)),
    ("openvino-model",),
    ("2.13",),
    mark=Mark(("errors",), r"raises GeneralFailure: Check 'is_number", returns_twice),
    plausible=returns_twice,
    rank=1270,
)
