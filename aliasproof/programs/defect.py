"""`Defect`: one way in which a `Program` is not well formed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from aliasproof.programs.program import Program


@dataclass(frozen=True, slots=True)
class Defect:
    """What is wrong with a program, and at which location, such as `instructions[3].args[1]`."""

    location: str
    message: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


WellFormednessRule: TypeAlias = Callable[[Program], Iterator[Defect]]


def definitions(program: Program) -> Iterator[tuple[str, str]]:
    """The location of each definition, and the name that it defines."""
    for index, view in enumerate(program.inputs):
        yield f"inputs[{index}].name", view.name
    for index, instruction in enumerate(program.instructions):
        for position, name in enumerate(instruction.results):
            yield f"instructions[{index}].results[{position}]", name


def fits_int64(value: int) -> bool:
    """True if the integer has at most 64 bits with sign."""
    return -(2**63) <= value < 2**63
