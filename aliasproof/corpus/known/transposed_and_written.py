"""Without gradients, AOTAutograd keeps a write to an input whose layout changes in its graph."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program, Ref
from aliasproof.ir.schemas import resolve


def lays_out_what_it_writes(program: Program) -> bool:
    """Whether a program lays out an input anew, and writes it."""
    inputs = {given.name for given in program.inputs}
    laid_out, written = set[str](), set[str]()
    for call in program.instructions:
        if call.op.startswith("aten.") and call.mutates() and isinstance(call.args[0], Ref):
            anew = torch.Tag.inplace_view in resolve(call.op).tags
            (laid_out if anew else written).add(call.args[0].name)
    return bool(inputs & laid_out & written)


# The bytes end wrong, too: another view of a square input sees it. Torch makes such a write after
# the graph where inputs require gradients. A mend that always does so shows another bug: that write
# forgets the offset of the input.
BUG = KnownBug(
    "transposed-and-written",
    "AOTAutograd copies what x.t_() made of a written x into the old x: an error, or a lost layout",
    "",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        aten.t_.default(x0)
        return ()
        """,
        view(2, 1),
    ),
    ("aot",),
    ("2.13",),
    mark=Mark(
        ("errors", "metadata", "inputs"),
        r"^(raises RuntimeError: expand: |input ends (with another shape|wrong$)|wrong stride)",
        lays_out_what_it_writes,
        reduced=True,
    ),
    plausible=lays_out_what_it_writes,
    rank=980,
)
