"""A kernel of ExecuTorch ends the process for the largest along a dimension of an empty tensor."""

from __future__ import annotations

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view


def _of_empty(made: ComputedCall) -> bool:
    return any(x.numel() == 0 for x in made.operands.values())


# "Input tensor must be nonempty" (MapReduceOverDimListPlan in kernels/portable/cpu/util/
# reduce_util.h): an assertion, which ends the process. `multilabel_margin_loss` becomes such calls.
BUG = KnownBug(
    "executorch-extreme-of-empty",
    "ExecuTorch aborts: amax along a dimension of size 1 of a tensor without elements",
    "",
    program_of("v0 = aten.amax.default(x0, [1])\nreturn (v0,)", view(0, 1)),
    ("executorch",),
    ("2.13",),
    mark=Mark(
        ("errors",),
        "dies of signal 6",
        computes(
            _of_empty, "amax", "amin", "multilabel_margin_loss", "multilabel_margin_loss_forward"
        ),
        reduced=True,
    ),
    rank=2260,
)
