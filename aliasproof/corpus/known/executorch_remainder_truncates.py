"""ExecuTorch gives the remainder of integers the sign of the dividend."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Storage

PROGRAM = program_of("v0 = aten.remainder.Scalar(x0, 2)\nreturn (v0,)", view(1, dtype=torch.int64))


def _of_integers(made: ComputedCall) -> bool:
    return all(not y.dtype.is_floating_point for y in made.results)


# "the same sign as the divisor", says the documentation of `torch.remainder`.
BUG = KnownBug(
    "executorch-remainder-truncates",
    "ExecuTorch: remainder of negative integers is negative",
    "",
    replace(PROGRAM, storages=(Storage(torch.int64, 1, ("-1",)),)),
    ("executorch",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        computes(_of_integers, "remainder", "remainder_"),
        reduced=True,
    ),
    rank=2230,
)
