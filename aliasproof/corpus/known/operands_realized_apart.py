"""Inductor gives a custom operator two copies where eager gives it two views of one tensor."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program


def _custom_write(program: Program) -> bool:
    """Whether an operator of a library writes, and takes several tensors."""
    return any(
        call.mutates() and not call.op.startswith("aten.") and len(call.refs) > 1
        for call in program.instructions
    )


BUG = KnownBug(
    "operands-realized-apart",
    "overlapping operands of a custom operator become tensors of their own if they are computed",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        torch.ops.aliasproof.add_both.default(v0, v0)
        v1 = aten.add.Scalar(v0, 1)
        return (v1,)
        """,
        view(1),
    ),
    ("inductor",),
    ("2.13",),
    # Each operand is a view of what was not computed yet, and gets a buffer of its own.
    mark=Mark(
        ("values", "inputs"), r"^(wrong value|input ends wrong)", _custom_write, reduced=True
    ),
    plausible=_custom_write,
    rank=675,
)
