"""Steps on instructions and outputs: leave them out, or make them plainer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from programs.execution import execute
from programs.layouts import reach
from programs.program import Argument, Input, Instruction, Program, Ref, Storage, names_in, rename
from programs.schemas import Kind, facts, resolve
from programs.values import input_tensors
from reduction.edits import put, with_uses_renamed, without, without_undefined

# --- leaving out ----------------------------------------------------------------------------------


def keep_one_output(program: Program) -> Iterator[Program]:
    """Return a single value, or nothing at all."""
    if program.outputs:  # a wrong mutation of an input shows without outputs
        yield replace(program, outputs=())
    if len(program.outputs) > 1:
        yield from (replace(program, outputs=(name,)) for name in program.outputs)


def drop_outputs(program: Program) -> Iterator[Program]:
    """Leave out one returned value."""
    for index in range(len(program.outputs)):
        yield replace(program, outputs=without(program.outputs, index))


def drop_tail(program: Program) -> Iterator[Program]:
    """Cut instructions off at the end, with the outputs that they define."""
    # The shortest first: one success makes the rest of the reduction fast.
    for length in range(len(program.instructions)):
        yield without_undefined(replace(program, instructions=program.instructions[:length]))


def drop_instructions(program: Program) -> Iterator[Program]:
    """Leave out consecutive instructions, from half of the program down to a single one.

    A use of a dropped result goes too, or is rewired to an operand of the dropped instruction.
    """
    count = len(program.instructions)
    size = max(count // 2, 1)
    while size:
        # From the end: later instructions have fewer users, so they can go more often.
        for start in range(count - size, -1, -1):
            yield from _drop(program, start, start + size)
        size //= 2


def _drop(program: Program, start: int, end: int) -> Iterator[Program]:
    dropped = program.instructions[start:end]
    kept = program.instructions[:start] + program.instructions[end:]
    results = [result for instruction in dropped for result in instruction.results]
    used = {name for instruction in kept for name in instruction.refs} | set(program.outputs)
    shorter = replace(program, instructions=kept)
    if not any(result in used for result in results):
        yield shorter
        return
    yield without_undefined(shorter)
    # Rewire each result to the first, second or third operand of its own instruction. Few ops have
    # more operands.
    for choice in range(3):
        names: dict[str, str] = {}
        for instruction in dropped:
            if instruction.results and instruction.refs:
                operand = instruction.refs[min(choice, len(instruction.refs) - 1)]
                # The operand may be a dropped result itself; then its replacement is meant.
                names.update(
                    {result: names.get(operand, operand) for result in instruction.results}
                )
        yield with_uses_renamed(shorter, names)


def results_to_inputs(program: Program) -> Iterator[Program]:
    """Turn a result into an input with the same layout, and leave out the instruction it is from.

    The input has a storage of its own, so aliases of the result are lost. The program runs, since
    only a run knows the layouts. If an instruction raises, no candidates follow.
    """
    values = {
        view.name: tensor
        for view, tensor in zip(program.inputs, input_tensors(program), strict=True)
    }
    for index, instruction in enumerate(program.instructions):
        try:
            with torch.no_grad():
                execute(instruction, values)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return
        # A mutating instruction has an effect besides its result, which no input can replace.
        if instruction.mutates() or not instruction.results:
            continue
        storages, inputs = list(program.storages), list(program.inputs)
        for name in instruction.results:
            tensor = values[name]
            made = Input(name, len(storages), tensor.dtype, tuple(tensor.shape), tensor.stride())
            storages.append(Storage(tensor.dtype, reach(made.sizes, made.strides)))
            inputs.append(made)
        kept = without(program.instructions, index)
        yield replace(program, storages=tuple(storages), inputs=tuple(inputs), instructions=kept)


def drop_result_names(program: Program) -> Iterator[Program]:
    """Leave the result of a mutating op unnamed, and use the mutated argument instead."""
    for index, instruction in enumerate(program.instructions):
        if not (instruction.results and instruction.mutates()):
            continue
        mutated = _mutated_names(instruction)
        # The results of a mutating op are its mutated arguments, in order, if there are as many.
        if len(mutated) == len(instruction.results):
            unnamed = program.with_instruction(index, replace(instruction, results=()))
            names = dict(zip(instruction.results, mutated, strict=True))
            yield with_uses_renamed(unnamed, names)


def _mutated_names(instruction: Instruction) -> list[str]:
    """The names of the values that an instruction writes, in the order of the schema."""
    parameters = resolve(instruction.op)._schema.arguments
    given = dict(instruction.kwargs) | {
        parameter.name: value
        for parameter, value in zip(parameters, instruction.args, strict=False)
    }
    written = [parameters[index].name for index in facts(resolve(instruction.op)).writes]
    return [name for parameter in written for name in names_in(given.get(parameter))]


def drop_arguments(program: Program) -> Iterator[Program]:
    """Leave out optional arguments: keywords, and positional ones at the end."""
    for index, instruction in enumerate(program.instructions):
        for position in range(len(instruction.kwargs)):
            kwargs = without(instruction.kwargs, position)
            yield program.with_instruction(index, replace(instruction, kwargs=kwargs))
        if len(instruction.args) > 1:
            shorter = replace(instruction, args=instruction.args[:-1])
            yield program.with_instruction(index, shorter)


# --- making plainer -------------------------------------------------------------------------------


def simplify_ops(program: Program) -> Iterator[Program]:
    """Replace an op by a plainer one of the same kind, on operands of the instruction.

    Instructions with several results stay, since no plain op has several.
    """
    for index, instruction in enumerate(program.instructions):
        operands = list(dict.fromkeys(instruction.refs))
        if not operands or len(instruction.results) > 1:
            continue
        for plainer in _plainer(instruction, operands):
            if plainer != instruction:
                yield program.with_instruction(index, plainer)


def _plainer(instruction: Instruction, operands: list[str]) -> Iterator[Instruction]:
    results = instruction.results
    kind = facts(resolve(instruction.op)).kind
    # Each operand takes its turn, since the failure may need the second one alone.
    for name in operands:
        operand = Ref(name)
        if kind is Kind.VIEW:
            yield Instruction("aten.alias.default", (operand,), (), results)
        elif kind is Kind.FUNCTIONAL:
            yield Instruction("aten.add.Scalar", (operand, 1), (), results)
            yield Instruction("aten.clone.default", (operand,), (), results)
        else:
            yield Instruction("aten.add_.Scalar", (operand, 1), (), results)
            yield Instruction("aten.zero_.default", (operand,), (), results)
            yield Instruction("aten.fill_.Scalar", (operand, 1), (), results)
            yield from (
                Instruction("aten.copy_.default", (operand, Ref(source)), (), results)
                for source in operands
                if source != name
            )
    if kind is Kind.FUNCTIONAL:
        pairs = ((left, right) for left in operands for right in operands)
        yield from (
            Instruction("aten.add.Tensor", (Ref(left), Ref(right)), (), results)
            for left, right in pairs
        )


def simplify_constants(program: Program) -> Iterator[Program]:
    """Bring each number in the arguments closer to zero."""
    for index, instruction in enumerate(program.instructions):
        for args in _simpler(instruction.args):
            assert isinstance(args, tuple)
            yield program.with_instruction(index, replace(instruction, args=args))
        for position, (key, value) in enumerate(instruction.kwargs):
            for simpler in _simpler(value):
                kwargs = put(instruction.kwargs, position, (key, simpler))
                yield program.with_instruction(index, replace(instruction, kwargs=kwargs))


def _simpler(argument: Argument) -> Iterator[Argument]:
    if isinstance(argument, tuple):
        for index, element in enumerate(argument):
            yield from (put(argument, index, simpler) for simpler in _simpler(element))
            if type(element) is int:  # a dimension of a shape, or a dim of a reduction
                yield without(argument, index)
    elif isinstance(argument, bool):  # before int, since a bool is an int
        if argument:
            yield False
    elif isinstance(argument, int):
        yield from (
            number
            for number in dict.fromkeys((0, 1, 2, -argument, argument - 1))
            if abs(number) <= abs(argument)
        )
    elif isinstance(argument, float):
        yield from (0.0, 1.0)


def rewire_uses(program: Program) -> Iterator[Program]:
    """Use a value that is defined earlier, inputs first, in place of an argument or an output."""
    order = [view.name for view in program.inputs]
    for index, instruction in enumerate(program.instructions):
        for name in dict.fromkeys(instruction.refs):
            for earlier in order[: order.index(name)]:
                yield program.with_instruction(index, _rewired(instruction, name, earlier))
        order.extend(instruction.results)  # now, since an instruction cannot use its own results
    for index, name in enumerate(program.outputs):
        for earlier in order[: order.index(name)]:
            yield replace(program, outputs=put(program.outputs, index, earlier))


def _rewired(instruction: Instruction, name: str, other: str) -> Instruction:
    """The instruction with another value in place of each use of a name; its results stay."""
    return replace(
        instruction,
        args=tuple(rename(value, {name: other}) for value in instruction.args),
        kwargs=tuple((key, rename(value, {name: other})) for key, value in instruction.kwargs),
    )
