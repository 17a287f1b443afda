"""Edits: the same program with one part replaced or left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from aliasproof.ir.program import Input, Instruction, Program, Ref, rename_instruction

T = TypeVar("T")


def fractions(count: int) -> Iterator[int]:
    """Half of the count, a quarter, an eighth, down to 1. Nothing for a count of 0."""
    size = count
    while size > 1:
        size //= 2
        yield size
    if count == 1:
        yield 1


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


# --- inputs that no instruction uses --------------------------------------------------------------


def unused_inputs(program: Program) -> list[Input]:
    """The inputs that no instruction uses.

    Being returned is no use: Dynamo then returns the argument itself, and its graph has no input
    for it.
    """
    used = {name for instruction in program.instructions for name in instruction.refs}
    return [view for view in program.inputs if view.name not in used]


def tidy_versions(program: Program) -> Iterator[Program]:
    """The program without the inputs that no instruction uses; then with a use of some of them.

    Only the presence of an input that shares its storage can matter, so only such an input gets a
    use. Storages that no input views go too.
    """
    unused = unused_inputs(program)
    if not unused:
        yield _without_unused_storages(program)
        return
    names = {view.name for view in unused}
    used = {view.storage for view in program.inputs if view.name not in names}
    yield _without_inputs(program, names)
    sharing = {view.name for view in unused if view.storage in used}
    if sharing:
        yield _with_uses(_without_inputs(program, names - sharing), sorted(sharing))


def _without_inputs(program: Program, names: set[str]) -> Program:
    inputs = tuple(view for view in program.inputs if view.name not in names)
    outputs = tuple(name for name in program.outputs if name not in names)
    return _without_unused_storages(replace(program, inputs=inputs, outputs=outputs))


def _without_unused_storages(program: Program) -> Program:
    used = sorted({view.storage for view in program.inputs})
    if len(used) == len(program.storages):
        return program
    position = {storage: index for index, storage in enumerate(used)}
    # A step may name a storage that is not there. Then it stays so, and validation rejects it.
    if any(storage >= len(program.storages) for storage in used):
        return program
    inputs = tuple(replace(view, storage=position[view.storage]) for view in program.inputs)
    return replace(
        program, storages=tuple(program.storages[storage] for storage in used), inputs=inputs
    )


def _with_uses(program: Program, names: list[str]) -> Program:
    """The program with one more instruction per name, whose result is not used."""
    taken = {view.name for view in program.inputs}
    taken |= {result for instruction in program.instructions for result in instruction.results}
    uses = []
    for name in names:
        result = f"used_{name}"
        while result in taken:
            result += "_"
        taken.add(result)
        uses.append(Instruction("aten.add.Scalar", (Ref(name), 1), (), (result,)))
    return replace(program, instructions=(*program.instructions, *uses))
