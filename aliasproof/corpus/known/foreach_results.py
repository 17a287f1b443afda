"""Inductor puts a foreach call in place whatever result is copied to which operand."""

from __future__ import annotations

from torch import fx

from aliasproof.corpus.inductor_passes import copy_operand, foreach_write_backs
from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import before_reinplacing


@before_reinplacing
def mended(graph: fx.Graph) -> None:
    """A result that is written to another operand is copied first, so the pass does not see it.

    Torch asks whether each operand gets a result of the call, and not whether it gets its own.
    """
    for write, item in foreach_write_backs(graph):
        if item is not write.args[0]:
            copy_operand(write, 1)


BUG = KnownBug(
    "foreach-results",
    "Inductor puts a foreach call in place although its results go to other operands",
    "",
    program_of(
        """
        v0, v1 = aten._foreach_add.Scalar([x0, x1], 1)
        aten.copy_.default(x0, v1)
        aten.copy_.default(x1, v0)
        return ()
        """,
        view(),
        view(),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "_foreach_add"),
    rank=460,
)
