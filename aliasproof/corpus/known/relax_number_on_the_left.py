"""CreateInplaceCall of TVM takes an index among operands for one among those of the kernel."""

from __future__ import annotations

import functools

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.ir.relax_spelling import spelled

BUG = KnownBug(
    "relax-number-on-the-left",
    "Relax puts a call in place whose number is in its kernel, and refuses the operand",
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, x0)
        v1 = aten.rsub.Scalar(v0, 1)
        return (v1,)
        """,
        view(2),
    ),
    ("relax", "relax-vm"),
    ("2.13", "2.15"),
    functools.partial(spelled, "numbers_last"),
    rank=2217,
)
