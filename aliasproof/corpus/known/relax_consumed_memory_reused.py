"""StaticPlanBlockMemory of TVM does not know that call_inplace_packed returns its operand."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view, writes

BUG = KnownBug(
    "relax-consumed-memory-reused",
    "Relax plans memory as if what call_inplace_packed returns were not its operand",
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, x0)
        aten.exp_.default(v0)
        v1 = aten.add.Tensor(x0, x0)
        v2 = aten.sub.Tensor(v1, v0)
        return (v2,)
        """,
        view(2),
    ),
    ("relax-vm-calls",),
    ("2.13", "2.15"),
    mark=Mark(("values", "inputs"), "", writes),
    rank=2220,
)
