"""Inductor puts a foreach call in place that reads an operand after it has written it."""

from __future__ import annotations

from torch import fx

from aliasproof.corpus.inductor_passes import copy_operand, foreach_write_backs
from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import before_reinplacing


@before_reinplacing
def mended(graph: fx.Graph) -> None:
    """A result is copied first if the call reads its operand for another result, too.

    Torch asks what reads the operands after the call, and not what the call itself reads: a kernel
    in place computes one result after the other.
    """
    for write, operand in list(foreach_write_backs(graph)):
        call = write.args[1].args[0]
        readers = [it for it in call.args if isinstance(it, (list, tuple))]
        if sum(operand in places for places in zip(*readers, strict=True)) > 1:
            copy_operand(write, 1)


BUG = KnownBug(
    "foreach-reads-other",
    "Inductor puts a foreach call in place that reads an operand after it has written it",
    "",
    program_of(
        """
        v0, v1 = aten._foreach_add.List([x0, x1], [x1, x0])
        aten.copy_.default(x0, v0)
        aten.copy_.default(x1, v1)
        return ()
        """,
        view(),
        view(),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=lambda program: any("_foreach_" in call.op for call in program.instructions),
    rank=465,
)
