"""ExecuTorch makes a 0-d tensor of a number, which counts as much as another 0-d tensor."""

from __future__ import annotations

import torch

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view


def _has_scalar_and_number(made: ComputedCall) -> bool:
    numbers = any(isinstance(it, int | float) for it in made.instruction.args)
    return numbers and all(x.dim() == 0 for x in made.operands.values())


# `ScalarToTensorPass` in executorch/exir/passes calls `torch.tensor(value)`. For promotion, torch
# takes a 0-d tensor for more than a number.
BUG = KnownBug(
    "executorch-number-promotes",
    "ExecuTorch: a 0-d int16 tensor plus 1 is int64",
    "",
    program_of("v0 = aten.add.Tensor(x0, 1)\nreturn (v0,)", view(dtype=torch.int16)),
    ("executorch",),
    ("2.13",),
    mark=Mark(("metadata",), "wrong dtype", computes(_has_scalar_and_number), reduced=True),
    rank=2250,
)
