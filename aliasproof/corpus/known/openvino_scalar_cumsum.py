"""OpenVINO ends the process where cumsum of a 0-d constant is folded."""

from __future__ import annotations

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view


def _of_scalar(made: ComputedCall) -> bool:
    return any(x.dim() == 0 for x in made.operands.values())


# `CumSum(Constant, 0)` is enough. Of a 0-d input, the kernel of the plugin runs.
BUG = KnownBug(
    "openvino-scalar-cumsum",
    "openvino.compile_model ends by SIGSEGV: cumsum of a 0-d constant",
    "",
    program_of(
        "v0 = aten.zeros_like.default(x0)\nv1 = aten.cumsum.default(v0, 0)\nreturn (v1,)", view()
    ),
    ("openvino-model",),
    ("2.13",),
    mark=Mark(
        ("errors",), "dies of signal 11", computes(_of_scalar, "cumsum", "cumprod"), reduced=True
    ),
    rank=1380,
)
