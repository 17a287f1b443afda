"""DataflowUseInplaceCalls of TVM writes into a constant, which a later call then reads."""

from __future__ import annotations

import functools

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.ir.relax_spelling import spelled

BUG = KnownBug(
    "relax-constant-written",
    "Relax puts a call in place that writes into a constant of the module",
    "",
    program_of(
        """
        v0 = aten.ones.default([2])
        v1 = aten.add.Tensor(v0, x0)
        return (v1,)
        """,
        view(2),
    ),
    ("relax:kept-outputs", "relax-vm:kept-outputs"),
    ("2.13", "2.15"),
    functools.partial(spelled, "constants_given"),
    rank=1100,
)
