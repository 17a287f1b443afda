"""OpenVINO ends the process where a 0-d input is broadcast to no dimensions."""

from __future__ import annotations

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view


def _expands_scalar(made: ComputedCall) -> bool:
    return all(x.dim() == 0 for x in made.tensors)


# `Broadcast(Parameter, [])` is enough: `compile_model` reads an address that is not mapped.
BUG = KnownBug(
    "openvino-scalar-broadcast",
    "openvino.compile_model ends by SIGSEGV: expand of a 0-d input to size []",
    "",
    program_of("v0 = aten.expand.default(x0, [])\nreturn (v0,)", view()),
    ("openvino-model",),
    ("2.13",),
    mark=Mark(
        ("errors",),
        "dies of signal 11",
        computes(_expands_scalar, "expand", "expand_copy", "broadcast_to", "expand_as"),
        reduced=True,
    ),
    rank=1370,
)
