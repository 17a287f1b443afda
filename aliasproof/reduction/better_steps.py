"""Steps that make more of a failure: the program gets longer, and what is wrong easier to see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aliasproof.programs.defect import definitions
from aliasproof.programs.program import Instruction, Program, Ref


def write_at_the_end(program: Program) -> Iterator[Program]:
    """Write to one value, and return the others. An alias too many makes one of them wrong."""
    names = [name for _, name in definitions(program)]
    for name in names:
        write = Instruction("aten.add_.Scalar", (Ref(name), 1))
        outputs = tuple(dict.fromkeys((*program.outputs, *names)))
        yield replace(program, instructions=(*program.instructions, write), outputs=outputs)
