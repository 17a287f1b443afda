"""`torch.func.functionalize` copies what `x.t_()` made of a written x into the old x."""

from __future__ import annotations

from aliasproof.corpus.known.transposed_and_written import lays_out_what_it_writes
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

# `_propagate_functional_input_mutation` (torch/csrc/functorch/init.cpp) gives an input new strides
# only where its sizes changed. By then, the strides may be those that a functional op returned. A
# mend would need those that the input had before.
BUG = KnownBug(
    "layout-not-copied-back",
    "after x.t_() and x.add_(1) under torch.func.functionalize, x has its new values transposed",
    "",
    program_of(
        """
        aten.t_.default(x0)
        aten.add_.Scalar(x0, 1)
        return ()
        """,
        view(2, 2),
    ),
    ("functionalize", "fx-reinplace"),
    ("2.13",),
    mark=Mark(("inputs",), r"^input ends wrong", lays_out_what_it_writes, reduced=True),
    plausible=lays_out_what_it_writes,
    rank=975,
)
