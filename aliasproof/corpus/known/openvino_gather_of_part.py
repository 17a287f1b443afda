"""OpenVINO gathers only with an index as large as its operand in the other dimensions."""

from __future__ import annotations

import torch

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view


def _leaves_a_part(made: ComputedCall) -> bool:
    operand, index = made.argument(0), made.argument(2)
    return operand is not None and index is not None and operand.shape != index.shape


GATHERS = ("gather", "take_along_dim")

# `GatherElements` wants that. `torch.gather` takes a smaller index, and the frontend cuts nothing.
BUG = KnownBug(
    "openvino-gather-of-part",
    "OpenVINO: gather with an index smaller than its operand raises when the model runs",
    "",
    program_of(
        "v0 = aten.gather.default(x0, 0, x1)\nreturn (v0,)",
        view(2, 2),
        view(1, 1, dtype=torch.int64),
    ),
    ("openvino-model",),
    ("2.13",),
    mark=Mark(("errors",), "raises RuntimeError", computes(_leaves_a_part, *GATHERS), reduced=True),
    plausible=lambda program: calls(program, *GATHERS),
    rank=1310,
)
