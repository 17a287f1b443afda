"""TopologicalSort of TVM moves a call behind the call in place that overwrites its operand."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

BUG = KnownBug(
    "relax-read-after-write",
    "Relax sorts a call behind the call in place that overwrites what it reads",
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, x0)
        v1 = aten.sub.Tensor(v0, x1)
        v2 = aten.add.Tensor(v0, 1)
        return (v2, v1)
        """,
        view(2),
        view(2),
    ),
    ("relax-sorted",),
    ("2.13", "2.15"),
    mark=Mark(("values", "inputs"), ""),
    rank=2219,
)
