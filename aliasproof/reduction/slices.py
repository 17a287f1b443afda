"""Steps that cut the data flow of a program: its tail, its outputs, its head, a neighbourhood.

Each offers halves of the program first, then quarters, and so on. So a long program becomes short
after a few questions, if the failure needs few of its instructions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from aliasproof.ir.lifting import as_inputs
from aliasproof.ir.program import Program, rename_instruction
from aliasproof.ir.schemas import Kind, facts, resolve
from aliasproof.reduction.data_flow import DataFlow
from aliasproof.reduction.edits import fractions, without_undefined


def cut_tail(program: Program) -> Iterator[Program]:
    """Cut off instructions at the end: all, half of them, a quarter, down to one.

    The outputs that are left are returned; or all values that what was cut off used, since a wrong
    value may have reached an output only through that.
    """
    count = len(program.instructions)
    for size in (count, *fractions(count)) if count else ():
        head, tail = program.instructions[: count - size], program.instructions[count - size :]
        defined = {view.name for view in program.inputs}
        defined |= {result for instruction in head for result in instruction.results}
        shorter = replace(program, instructions=head)
        yield without_undefined(shorter)
        used = [name for instruction in tail for name in instruction.refs]
        live = dict.fromkeys(name for name in (*program.outputs, *used) if name in defined)
        yield replace(shorter, outputs=tuple(live))


def slice_outputs(program: Program) -> Iterator[Program]:
    """Keep a part of the outputs, with what they depend on: none, all, halves, down to one."""
    outputs = program.outputs
    flow = DataFlow.of(program)
    if len(flow.needs) < len(program.instructions):  # an instruction raises
        return
    yield replace(program, outputs=())
    yield _behind(program, flow, ())
    yield _behind(program, flow, outputs)
    for size in fractions(len(outputs)):
        # The last outputs first: values that are defined late show more of what went wrong.
        for end in range(len(outputs), 0, -size):
            part = outputs[max(end - size, 0) : end]
            yield _behind(program, flow, part)
            yield replace(program, outputs=part)


def _behind(program: Program, flow: DataFlow, outputs: tuple[str, ...]) -> Program:
    """The program with these outputs and what they depend on; without any, what inputs end as."""
    names = outputs or tuple(view.name for view in program.inputs)
    kept = flow.backward(flow.behind(names, names))
    instructions = tuple(
        instruction for index, instruction in enumerate(program.instructions) if index in kept
    )
    return replace(program, instructions=instructions, outputs=outputs)


def keep_neighbourhood(program: Program) -> Iterator[Program]:
    """Keep the last instruction with those that are near it in the data flow.

    `cut_tail` made it the last, so without it nothing fails.
    """
    count = len(program.instructions)
    flow = DataFlow.of(program)
    if not 2 < count == len(flow.needs):
        return
    for near in flow.around(count - 1):
        if 1 < len(near) < count:
            yield from _extracts(program, flow, near)


def cut_head(program: Program) -> Iterator[Program]:
    """Cut off instructions at the start: half of them, a quarter, down to one."""
    count = len(program.instructions)
    flow = DataFlow.of(program)
    if len(flow.needs) < count:
        return
    for size in fractions(count) if count > 1 else ():
        yield from _extracts(program, flow, set(range(size, count)))


# --- a part of the instructions -------------------------------------------------------------------


def _extracts(program: Program, flow: DataFlow, kept: set[int]) -> Iterator[Program]:
    """Only these instructions. Other values that they use become inputs.

    First with the view ops between a value and what it is a view of. Then without: a view becomes
    an input too, and shares its storage with others, as in the run.
    """
    yield _extract(program, flow, _with_views(program, flow, kept))
    yield _extract(program, flow, kept)


def _with_views(program: Program, flow: DataFlow, kept: Collection[int]) -> set[int]:
    """These instructions, and the view ops behind the values that they use."""
    closure, waiting = set(kept), list(kept)
    while waiting:
        for name in program.instructions[waiting.pop()].refs:
            maker = flow.made_by.get(name)
            if maker is None or maker in closure:
                continue
            if facts(resolve(program.instructions[maker].op)).kind is Kind.VIEW:
                closure.add(maker)
                waiting.append(maker)
    return closure


def _extract(program: Program, flow: DataFlow, kept: set[int]) -> Program:
    instructions = [program.instructions[index] for index in sorted(kept)]
    made = {result for instruction in instructions for result in instruction.results}
    # An op in place returns its argument. If the op goes, the argument takes the place of its
    # result: `values` are in the order of their definition, so it is the first name of the tensor.
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(tensor), name) for name, tensor in flow.values.items()}
    names.update({name: name for name in made})
    instructions = [rename_instruction(instruction, names) for instruction in instructions]
    used = {name for instruction in instructions for name in instruction.refs} - made
    inputs, storages = as_inputs({name: flow.values[name] for name in names if name in used})
    outputs = tuple(names[name] for name in program.outputs if names[name] in used | made)
    if program.outputs and not outputs:  # something must show what goes wrong
        outputs = tuple(result for instruction in instructions for result in instruction.results)
    return replace(
        program,
        storages=storages,
        inputs=inputs,
        instructions=tuple(instructions),
        outputs=outputs,
    )
