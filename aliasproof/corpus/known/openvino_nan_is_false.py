"""OpenVINO takes NaN for False."""

from __future__ import annotations

from dataclasses import replace

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.programs.program import Program, Storage

PROGRAM = program_of("v0 = aten.logical_not.default(x0)\nreturn (v0,)", view(1))


def may_read_nan(program: Program) -> bool:
    """Whether an input may hold NaN."""
    explicit = any("nan" in storage.values for storage in program.storages)
    return explicit or program.fill == "special"


# So is `relu` of NaN 0 (#35649 of that tracker), and NaN >= 1 (#35927).
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
