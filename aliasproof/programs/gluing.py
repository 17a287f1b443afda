"""`glue`: several programs as one, side by side.

A compiler costs nearly the same for one program and for twenty. The members of a glued program
share no storage, and none uses a value of another. So each computes what it computes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from aliasproof.programs.program import Input, Instruction, Program, Storage, rename_instruction
from aliasproof.programs.storage_values import texts_of
from aliasproof.programs.values import storage_data

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GluedMember:
    """A program in a glued one: the indices of its storages, inputs and outputs there."""

    program: Program
    storages: range
    inputs: range
    outputs: range


@dataclass(frozen=True, slots=True)
class Glued:
    """A program made of others, which are its members in order."""

    program: Program
    members: tuple[GluedMember, ...]


def glue(programs: Sequence[Program]) -> Glued:
    """One program that does what these do, one after the other.

    Storages, inputs, instructions and outputs of the members follow each other. Names begin with
    the number of their member. The data in storages stay those of the members. All must be on one
    device.
    """
    storages: list[Storage] = []
    inputs: list[Input] = []
    instructions: list[Instruction] = []
    outputs: list[str] = []
    members = []
    for number, program in enumerate(programs):
        names = _names(program, f"p{number}_")
        first = len(storages), len(inputs), len(outputs)
        storages += _with_values(program)
        inputs += (
            replace(view, name=names[view.name], storage=first[0] + view.storage)
            for view in program.inputs
        )
        instructions += (rename_instruction(call, names) for call in program.instructions)
        outputs += (names[name] for name in program.outputs)
        ends = len(storages), len(inputs), len(outputs)
        members.append(GluedMember(program, *map(range, first, ends)))
    whole = Program(tuple(storages), tuple(inputs), tuple(instructions), tuple(outputs))
    if programs:
        whole = replace(whole, device=programs[0].device)
    return Glued(whole, tuple(members))


def part(values: Sequence[T], indices: range) -> Sequence[T]:
    """The values of a member, out of those of the glued program."""
    return values[indices.start : indices.stop]


def _names(program: Program, prefix: str) -> dict[str, str]:
    defined = [view.name for view in program.inputs]
    defined += (name for call in program.instructions for name in call.results)
    return {name: prefix + name for name in defined}


def _with_values(program: Program) -> list[Storage]:
    """The storages with the data that the fill of the program puts there.

    A fill depends on the index of a storage and on the seed. In a glued program both differ.
    """
    return [
        storage
        if storage.values
        else replace(storage, values=texts_of(storage_data(program, index)))
        for index, storage in enumerate(program.storages)
    ]
