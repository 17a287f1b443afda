"""Steps on instructions and outputs: leave them out, or make them plainer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch

from aliasproof.ir.program import Argument, Input, Instruction, Program, Ref, Storage, rename
from aliasproof.ir.regions import reach
from aliasproof.ir.schemas import Kind, facts, resolve
from aliasproof.reduction.data_flow import DataFlow
from aliasproof.reduction.edits import fractions, put, with_uses_renamed, without, without_undefined

# --- leaving out ----------------------------------------------------------------------------------


def drop_outputs(program: Program) -> Iterator[Program]:
    """Leave out one returned value."""
    for index in range(len(program.outputs)):
        yield replace(program, outputs=without(program.outputs, index))


def drop_instructions(program: Program) -> Iterator[Program]:
    """Leave out consecutive instructions, from half of the program down to a single one.

    A use of a dropped result goes too, or is rewired to an operand of the dropped instruction.
    """
    count = len(program.instructions)
    for size in fractions(count):
        # From the end: later instructions have fewer users, so they can go more often.
        for end in range(count, 0, -size):
            yield from _drop(program, max(end - size, 0), end)


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
    # more operands. For several instructions, only one choice: most of their results are not used.
    for choice in range(3 if len(dropped) == 1 else 1):
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
    """Turn results into inputs of the same layout, and leave out the instructions they are from.

    From half of the program down to a single instruction. Each input has a storage of its own, so
    aliases of a result are lost; views are thus turned one at a time. The program runs, since only
    a run knows the layouts. If an instruction raises, no candidates follow.
    """
    count = len(program.instructions)
    flow = DataFlow.of(program)
    if len(flow.needs) < count:
        return
    for size in fractions(count):
        for start in range(0, count, size):
            turned = {
                index
                for index in range(start, min(start + size, count))
                if _is_replaceable(program.instructions[index], views=size == 1)
            }
            if turned:
                yield _with_results_as_inputs(program, turned, flow.values)


def _is_replaceable(instruction: Instruction, *, views: bool) -> bool:
    # A mutating instruction has an effect besides its result, which no input can replace.
    kind = facts(resolve(instruction.op)).kind
    return bool(instruction.results) and (kind is Kind.FUNCTIONAL or (views and kind is Kind.VIEW))


def _with_results_as_inputs(
    program: Program, turned: set[int], values: dict[str, torch.Tensor]
) -> Program:
    """The program with the results of the instructions with these indices as inputs."""
    storages, inputs = list(program.storages), list(program.inputs)
    for index in sorted(turned):
        for name in program.instructions[index].results:
            tensor = values[name]
            made = Input(name, len(storages), tensor.dtype, tuple(tensor.shape), tensor.stride())
            storages.append(Storage(tensor.dtype, reach(made.sizes, made.strides)))
            inputs.append(made)
    kept = tuple(
        instruction for index, instruction in enumerate(program.instructions) if index not in turned
    )
    return replace(program, storages=tuple(storages), inputs=tuple(inputs), instructions=kept)


def drop_result_names(program: Program) -> Iterator[Program]:
    """Leave the result of a mutating op unnamed, and use the mutated argument instead."""
    for index, instruction in enumerate(program.instructions):
        if not (instruction.results and instruction.mutates()):
            continue
        mutated = instruction.written
        # The results of a mutating op are its mutated arguments, in order, if there are as many.
        if len(mutated) == len(instruction.results):
            unnamed = program.with_instruction(index, replace(instruction, results=()))
            names = dict(zip(instruction.results, mutated, strict=True))
            yield with_uses_renamed(unnamed, names)


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
        # Larger numbers too: with 0 a call can change nothing, or give a value without elements.
        yield from dict.fromkeys((0, 1, 2, -argument, argument // 2, argument - 1))
    elif isinstance(argument, float):
        yield from (0.0, 1.0, 2.0)


def enlarge_empty_results(program: Program) -> Iterator[Program]:
    """Give two numbers of a call that are 0 or 1 larger values at once.

    `unfold(x, 0, 0, 1)` has empty windows. With size 1 and step 2 the windows leave elements out
    too, and there is something to see.
    """
    for index, instruction in enumerate(program.instructions):
        small = [
            position
            for position, argument in enumerate(instruction.args)
            if type(argument) is int and argument in (0, 1)
        ]
        for one, other in itertools.combinations(small, 2):
            for first, second in ((1, 2), (2, 1), (2, 2)):
                args = put(put(instruction.args, one, first), other, second)
                yield program.with_instruction(index, replace(instruction, args=args))


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


# --- autograd -------------------------------------------------------------------------------------


def plain_gradients(program: Program) -> Iterator[Program]:
    """Let calls run with gradients, and let inputs be computed from leaves: all, or one of them.

    Such an input is not static: no call computes a parameter or a buffer.
    """
    instructions = tuple(replace(instruction, grad=True) for instruction in program.instructions)
    storages = tuple(replace(storage, gradient="computed") for storage in program.storages)
    inputs = tuple(replace(view, static=False) for view in program.inputs)
    yield replace(program, instructions=instructions, storages=storages, inputs=inputs)
    static = {view.storage for view in program.inputs if view.static}
    for index, storage in enumerate(storages):
        if index not in static:
            yield replace(program, storages=put(program.storages, index, storage))
    for index, instruction in enumerate(instructions):
        yield program.with_instruction(index, instruction)
    for index, view in enumerate(inputs):
        yield program.with_input(index, view)
