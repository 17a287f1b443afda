"""InplaceConditionsMet of TVM looks into tuples that are written, and not into those that live."""

from __future__ import annotations

import functools

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.ir.relax_spelling import spelled

BUG = KnownBug(
    "relax-tuple-field-written",
    "Relax puts a call in place that writes into a tensor of a tuple that is read later",
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, x0)
        v1 = aten.add.Tensor(v0, 1)
        v2 = aten.cat.default([v0, x0])
        return (v1, v2)
        """,
        view(2),
    ),
    ("relax", "relax-vm"),
    ("2.13", "2.15"),
    functools.partial(spelled, "tuples_late"),
    rank=2215,
)
