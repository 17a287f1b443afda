"""ExecuTorch gives the sign of NaN as NaN."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.computed_calls import computes, reads_nan
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Storage

PROGRAM = program_of("v0 = aten.sign.default(x0)\nreturn (v0,)", view(1))

BUG = KnownBug(
    "executorch-sign-of-nan",
    "ExecuTorch: sign of NaN is NaN, and 0 in eager",
    "",
    replace(PROGRAM, storages=(Storage(torch.float32, 1, ("nan",)),)),
    ("executorch",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        computes(reads_nan, "sign", "sign_", "sgn", "sgn_"),
        reduced=True,
    ),
    rank=2240,
)
