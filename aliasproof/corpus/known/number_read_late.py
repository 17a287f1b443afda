"""Inductor reads an input that is one number after a custom operator has written it."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.programs.program import Program


def _custom_write_to_number(program: Program) -> bool:
    custom = any(
        call.mutates() and not call.op.startswith("aten.") for call in program.instructions
    )
    return custom and any(tensor.sizes == () for tensor in program.inputs)


BUG = KnownBug(
    "number-read-late",
    "Inductor reads an input without dimensions after a custom operator has written it",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        torch.ops.aliasproof.double.default(x0)
        return (v0,)
        """,
        view(),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    # The scheduler puts the kernel that reads the number after the call that writes it.
    mark=Mark(("values",), r"^wrong value", _custom_write_to_number, reduced=True),
    plausible=_custom_write_to_number,
    rank=320,
)
