"""TVM multiplies by -1 in the dtype of the operand for `negative`, and has no such uint8."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

BUG = KnownBug(
    "relax-negative-of-unsigned",
    "Relax: negative of a uint8 tensor raises 'cannot make uint from negative value'",
    "",
    program_of("v0 = aten.neg.default(x0)\nreturn (v0,)", view(2, dtype=torch.uint8)),
    ("relax-vm",),
    ("2.13", "2.15"),
    mark=Mark(("errors",), "cannot make uint from negative value"),
    rank=2280,
)
