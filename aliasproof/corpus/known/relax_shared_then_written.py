"""EliminateCommonSubexpr of TVM shares what a call in place writes later."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

BUG = KnownBug(
    "relax-shared-then-written",
    "Relax shares the results of two equal calls, one of which a call in place overwrites",
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, x0)
        v1 = aten.mul.Tensor(x0, x0)
        v2 = aten.add.Tensor(v0, 1)
        return (v1, v2)
        """,
        view(2),
    ),
    ("relax-shared",),
    ("2.13", "2.15"),
    mark=Mark(("values", "inputs"), ""),
    rank=2218,
)
