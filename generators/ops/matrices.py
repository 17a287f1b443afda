"""In-place ops on matrices."""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators.arguments import ADDBMM, ADDMM, ADDMV, ADDR, BADDBMM, multiplies
from aliasproof.generators.operator import Operator, at_least, exactly, line, of_rank

MATRICES: tuple[Operator, ...] = (
    *of_rank(exactly(1), line("matrix", "addmv_.default", multiplies, **ADDMV)),
    *of_rank(
        exactly(2),
        line("matrix", "addmm_.default", multiplies, **ADDMM),
        line("matrix", "addr_.default", multiplies, **ADDR),
        line("matrix", "addbmm_.default", multiplies, **ADDBMM),
        # Beyond rank 2, eager wants all sizes equal.
        # Where the operand overlaps itself, it writes some of the places of an element.
        line(
            "matrix",
            "fill_diagonal_.default",
            fill_value=numbers.number_for_distinct,
            wrap=numbers.wrap_of_diagonal,
        ),
    ),
    *of_rank(exactly(3), line("matrix", "baddbmm_.default", multiplies, **BADDBMM)),
    *of_rank(
        at_least(2),
        line("matrix", "triu_.default", diagonal=numbers.offset_of_diagonal),
        line("matrix", "tril_.default"),
        line("matrix", "renorm_.default", p=numbers.one_of(1, 2), maxnorm=numbers.one_of(1, 2, 5)),
    ),
)
