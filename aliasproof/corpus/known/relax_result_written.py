"""DataflowUseInplaceCalls of TVM writes into what a function returned, though that is not new."""

from __future__ import annotations

import functools

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.ir.relax_spelling import spelled

BUG = KnownBug(
    "relax-result-written",
    "Relax puts a call in place that writes into the constant that a function returned",
    "",
    program_of(
        """
        v0 = aten.ones.default([2])
        v1 = aten.add.Tensor(v0, x0)
        return (v1,)
        """,
        view(2),
    ),
    ("relax-calls:kept-outputs",),
    ("2.13", "2.15"),
    functools.partial(spelled, "results_given"),
    rank=2212,
)
