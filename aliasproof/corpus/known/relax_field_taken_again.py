"""AnalyzeLiveness of TVM does not count a TupleGetItem as a use of its tuple."""

from __future__ import annotations

import functools

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.ir.relax_spelling import spelled

BUG = KnownBug(
    "relax-field-taken-again",
    "Relax puts a call in place that writes into the field of a tuple, which is taken again later",
    "",
    program_of(
        """
        v0, v1 = aten.split.Tensor(x0, 1)
        v2 = aten.add.Tensor(v0, 1)
        return (v0, v2)
        """,
        view(2),
    ),
    ("relax", "relax-vm"),
    ("2.13", "2.15"),
    functools.partial(spelled, "fields_once"),
    rank=2214,
)
