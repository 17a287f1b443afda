"""Edits: the same program with one part replaced or left out."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from programs.program import Program, rename_instruction

T = TypeVar("T")


def put(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    """The items with another one at that index."""
    return (*items[:index], item, *items[index + 1 :])


def without(items: tuple[T, ...], index: int) -> tuple[T, ...]:
    """The items without the one at that index."""
    return items[:index] + items[index + 1 :]


def with_uses_renamed(program: Program, names: dict[str, str]) -> Program:
    """The program with names replaced. `names` maps values that nothing defines any more."""
    instructions = tuple(
        rename_instruction(instruction, names) for instruction in program.instructions
    )
    outputs = tuple(names.get(name, name) for name in program.outputs)
    return replace(program, instructions=instructions, outputs=outputs)


def without_undefined(program: Program) -> Program:
    """The program without the instructions and outputs that use values that nothing defines."""
    defined = {view.name for view in program.inputs}
    kept = []
    # One pass is enough: the results of an instruction that goes are not defined for later ones.
    for instruction in program.instructions:
        if all(name in defined for name in instruction.refs):
            kept.append(instruction)
            defined.update(instruction.results)
    outputs = tuple(name for name in program.outputs if name in defined)
    return replace(program, instructions=tuple(kept), outputs=outputs)
