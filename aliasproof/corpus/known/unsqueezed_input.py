"""Dynamo guards the sizes of an input after `unsqueeze_`, which has one more than before."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.ir.program import Program


def _unsqueezes(program: Program) -> bool:
    return calls(program, "unsqueeze_")


BUG = KnownBug(
    "unsqueezed-input",
    "torch.compile of aten.unsqueeze_(x) for an input x raises IndexError while guards are made",
    "https://github.com/pytorch/pytorch/issues/143889",
    program_of(
        """
        aten.unsqueeze_.default(x0, 0)
        return ()
        """,
        view(),
    ),
    ("dynamo",),
    ("2.13", "2.15"),
    mark=Mark(("errors",), r"IndexError: list index out of range", _unsqueezes),
    plausible=_unsqueezes,
    rank=820,
)
