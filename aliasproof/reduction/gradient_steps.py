"""The step on how autograd sees a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aliasproof.programs.program import Program
from aliasproof.reduction.edits import put


def plain_gradients(program: Program) -> Iterator[Program]:
    """Let calls run with gradients, and let inputs be computed from leaves: all, or one of them."""
    instructions = tuple(replace(each, grad=True) for each in program.instructions)
    storages = tuple(replace(storage, gradient="computed") for storage in program.storages)
    yield replace(program, instructions=instructions, storages=storages)
    for index, storage in enumerate(storages):
        yield replace(program, storages=put(program.storages, index, storage))
    for index, instruction in enumerate(instructions):
        yield program.with_instruction(index, instruction)
