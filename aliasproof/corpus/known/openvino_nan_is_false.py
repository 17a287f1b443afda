"""OpenVINO takes NaN for False."""

from __future__ import annotations

from dataclasses import replace

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.programs.program import Program, Storage

PROGRAM = program_of("v0 = aten.logical_not.default(x0)\nreturn (v0,)", view(1))


def may_read_nan(program: Program) -> bool:
    """Whether an input may hold NaN, and a call asks for truth."""
    truths = ("logical", "any", "all", "_to_copy", "where", "masked", "nonzero")
    asked = any(truth in call.op for call in program.instructions for truth in truths)
    explicit = any("nan" in storage.values for storage in program.storages)
    return asked and (program.fill == "special" or explicit)


BUG = KnownBug(
    "openvino-nan-is-false",
    "OpenVINO: NaN converted to bool is False",
    "https://github.com/openvinotoolkit/openvino/issues/35932",
    replace(PROGRAM, storages=(Storage(PROGRAM.storages[0].dtype, 1, ("nan",)),)),
    ("openvino-model",),
    ("2.13",),
    mark=Mark(("values", "inputs"), "wrong value|input ends wrong", may_read_nan),
    plausible=may_read_nan,
    rank=1300,
)
