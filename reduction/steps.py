"""The passes of the reducer. Each enumerates candidates that are simpler than a program in one respect.

A pass need not know whether a candidate makes sense: `Reducer.consider` has it checked, run in
eager and judged. So the passes may be bold, as long as they come in an order that tries what
removes most first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias, TypeVar

import torch

from programs.execution import execute
from programs.layouts import dense_strides, reach
from programs.program import (
    Argument,
    Input,
    Instruction,
    Program,
    Ref,
    Storage,
    names_in,
    rename,
    rename_instruction,
)
from programs.schemas import Kind, facts, resolve
from programs.values import input_tensors

T = TypeVar("T")
ReductionStep: TypeAlias = Callable[[Program], Iterator[Program]]


def keep_one_output(program: Program) -> Iterator[Program]:
    """Return a single value, or nothing at all."""
    if program.outputs:
        yield replace(program, outputs=())
    if len(program.outputs) > 1:
        yield from (replace(program, outputs=(name,)) for name in program.outputs)


def drop_outputs(program: Program) -> Iterator[Program]:
    """Leave out one returned value."""
    for index in range(len(program.outputs)):
        yield replace(program, outputs=program.outputs[:index] + program.outputs[index + 1 :])


def drop_tail(program: Program) -> Iterator[Program]:
    """Cut instructions off at the end, with the outputs that they define."""
    for length in range(len(program.instructions)):
        yield _without_undefined(replace(program, instructions=program.instructions[:length]))


def drop_instructions(program: Program) -> Iterator[Program]:
    """Leave out a run of instructions, from half of them down to one; uses of their results are rewired."""
    count = len(program.instructions)
    size = max(count // 2, 1)
    while size:
        for start in range(count - size, -1, -1):
            yield from _drop(program, start, start + size)
        size //= 2


def _drop(program: Program, start: int, end: int) -> Iterator[Program]:
    dropped = program.instructions[start:end]
    kept = program.instructions[:start] + program.instructions[end:]
    results = [result for each in dropped for result in each.results]
    used = {name for each in kept for name in each.refs} | set(program.outputs)
    if not any(result in used for result in results):
        yield replace(program, instructions=kept)
        return
    yield _without_undefined(replace(program, instructions=kept))
    for choice in range(
        3
    ):  # rewire each result to the first, second or third operand of its own instruction
        names: dict[str, str] = {}
        for each in dropped:
            if each.results and each.refs:
                operand = each.refs[min(choice, len(each.refs) - 1)]
                names.update({result: names.get(operand, operand) for result in each.results})
        yield _renamed_uses(replace(program, instructions=kept), names)


def _without_undefined(program: Program) -> Program:
    """The program without the instructions and outputs that use values no longer defined."""
    defined = {each.name for each in program.inputs}
    kept = []
    for each in program.instructions:
        if all(name in defined for name in each.refs):
            kept.append(each)
            defined.update(each.results)
    outputs = tuple(name for name in program.outputs if name in defined)
    return replace(program, instructions=tuple(kept), outputs=outputs)


def _renamed_uses(program: Program, names: dict[str, str]) -> Program:
    instructions = tuple(rename_instruction(each, names) for each in program.instructions)
    return replace(
        program,
        instructions=instructions,
        outputs=tuple(names.get(each, each) for each in program.outputs),
    )


def results_to_inputs(program: Program) -> Iterator[Program]:
    """Turn a result into an input of its own with the same layout, and leave out the instruction that made it."""
    values = {
        each.name: tensor
        for each, tensor in zip(program.inputs, input_tensors(program), strict=True)
    }
    for index, each in enumerate(program.instructions):
        try:
            with torch.no_grad():
                execute(each, values)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return
        if each.mutates() or not each.results:
            continue
        storages, inputs = list(program.storages), list(program.inputs)
        for name in each.results:
            tensor = values[name]
            made = Input(name, len(storages), tensor.dtype, tuple(tensor.shape), tensor.stride())
            storages.append(Storage(tensor.dtype, reach(made.sizes, made.strides)))
            inputs.append(made)
        kept = program.instructions[:index] + program.instructions[index + 1 :]
        yield replace(program, storages=tuple(storages), inputs=tuple(inputs), instructions=kept)


def drop_inputs(program: Program) -> Iterator[Program]:
    """Leave out an input: unused, or with another input in its place."""
    used = {name for each in program.instructions for name in each.refs} | set(program.outputs)
    for each in program.inputs:
        smaller = replace(
            program, inputs=tuple(other for other in program.inputs if other is not each)
        )
        if each.name not in used:
            yield smaller
        else:
            yield from (_renamed_uses(smaller, {each.name: other.name}) for other in smaller.inputs)
            yield _without_undefined(smaller)


def drop_storages(program: Program) -> Iterator[Program]:
    """Leave out storages that no input views."""
    used = sorted({each.storage for each in program.inputs})
    if len(used) < len(program.storages):
        position = {storage: index for index, storage in enumerate(used)}
        inputs = tuple(replace(each, storage=position[each.storage]) for each in program.inputs)
        yield replace(
            program, storages=tuple(program.storages[each] for each in used), inputs=inputs
        )


def separate_storages(program: Program) -> Iterator[Program]:
    """Give an input that shares a storage one of its own."""
    for index, each in enumerate(program.inputs):
        if sum(other.storage == each.storage for other in program.inputs) > 1:
            own = Storage(each.dtype, each.offset + reach(each.sizes, each.strides))
            moved = replace(each, storage=len(program.storages))
            yield replace(
                program,
                storages=(*program.storages, own),
                inputs=_put(program.inputs, index, moved),
            )


def simplify_ops(program: Program) -> Iterator[Program]:
    """Replace an op by a plainer one of its kind, with the same first operands and at most one result."""
    for index, each in enumerate(program.instructions):
        operands = list(dict.fromkeys(each.refs))
        if not operands or len(each.results) > 1:
            continue
        for plainer in _plainer(each, operands):
            if plainer != each:
                yield replace(program, instructions=_put(program.instructions, index, plainer))


def _plainer(instruction: Instruction, operands: list[str]) -> Iterator[Instruction]:
    results = instruction.results
    for name in operands:
        own = Ref(name)
        kind = facts(resolve(instruction.op)).kind
        if kind is Kind.VIEW:
            yield Instruction("aten.alias.default", (own,), (), results)
        elif kind is Kind.FUNCTIONAL:
            yield Instruction("aten.add.Scalar", (own, 1), (), results)
            yield Instruction("aten.clone.default", (own,), (), results)
        else:
            yield Instruction("aten.add_.Scalar", (own, 1), (), results)
            yield Instruction("aten.zero_.default", (own,), (), results)
            yield Instruction("aten.fill_.Scalar", (own, 1), (), results)
            yield from (
                Instruction("aten.copy_.default", (own, Ref(each)), (), results)
                for each in operands
                if each != name
            )
    if facts(resolve(instruction.op)).kind is Kind.FUNCTIONAL:
        pairs = ((one, other) for one in operands for other in operands)
        yield from (
            Instruction("aten.add.Tensor", (Ref(one), Ref(other)), (), results)
            for one, other in pairs
        )


def drop_result_names(program: Program) -> Iterator[Program]:
    """Leave the result of a mutating op unnamed, using the mutated argument instead."""
    for index, each in enumerate(program.instructions):
        if each.results and each.mutates():
            written = facts(resolve(each.op)).writes
            values = dict(each.kwargs) | {
                arg.name: value
                for arg, value in zip(resolve(each.op)._schema.arguments, each.args, strict=False)
            }
            targets = [
                value
                for w in written
                for value in names_in(values.get(resolve(each.op)._schema.arguments[w].name))
            ]
            if len(targets) == len(each.results):
                plain = replace(
                    program,
                    instructions=_put(program.instructions, index, replace(each, results=())),
                )
                yield _renamed_uses(plain, dict(zip(each.results, targets, strict=True)))


def drop_arguments(program: Program) -> Iterator[Program]:
    """Leave out optional arguments: keywords, and positional ones at the end."""
    for index, each in enumerate(program.instructions):
        for position in range(len(each.kwargs)):
            kwargs = each.kwargs[:position] + each.kwargs[position + 1 :]
            yield replace(
                program,
                instructions=_put(program.instructions, index, replace(each, kwargs=kwargs)),
            )
        if len(each.args) > 1:
            yield replace(
                program,
                instructions=_put(program.instructions, index, replace(each, args=each.args[:-1])),
            )


def simplify_dtypes(program: Program) -> Iterator[Program]:
    """Make everything float32 or int64; then one storage at a time."""
    for plain in (torch.float32, torch.int64):
        yield _with_dtypes(program, dict.fromkeys(range(len(program.storages)), plain))
    for index in range(len(program.storages)):
        for plain in (torch.float32, torch.int64):
            yield _with_dtypes(program, {index: plain})


def _with_dtypes(program: Program, dtypes: dict[int, torch.dtype]) -> Program:
    """Change the dtype of storages, and of the inputs that read them as their own dtype; lengths stay."""
    storages = tuple(
        replace(each, dtype=dtypes.get(i, each.dtype)) for i, each in enumerate(program.storages)
    )
    inputs = tuple(
        replace(each, dtype=dtypes[each.storage])
        if each.storage in dtypes and each.dtype == program.storages[each.storage].dtype
        else each
        for each in program.inputs
    )
    return replace(program, storages=storages, inputs=inputs)


def simplify_layouts(program: Program) -> Iterator[Program]:
    """Make an input dense, start it at offset 0, or cut a storage to what its inputs reach."""
    for index, each in enumerate(program.inputs):
        yield replace(
            program,
            inputs=_put(
                program.inputs, index, replace(each, strides=dense_strides(each.sizes), offset=0)
            ),
        )
        yield replace(
            program,
            inputs=_put(program.inputs, index, replace(each, strides=dense_strides(each.sizes))),
        )
        yield replace(program, inputs=_put(program.inputs, index, replace(each, offset=0)))
        if each.offset > 1:
            yield replace(program, inputs=_put(program.inputs, index, replace(each, offset=1)))
        for dim, stride in enumerate(each.strides):
            if stride > 1:
                yield replace(
                    program,
                    inputs=_put(
                        program.inputs,
                        index,
                        replace(each, strides=_put(each.strides, dim, stride - 1)),
                    ),
                )
    for index in range(len(program.storages)):
        yield _trimmed(program, {index})


def drop_dimensions(program: Program) -> Iterator[Program]:
    """Leave out a dimension of one input, or the same one of all inputs."""
    for dim in range(max((len(each.sizes) for each in program.inputs), default=0)):
        yield _fitted(
            replace(program, inputs=tuple(_without_dimension(each, dim) for each in program.inputs))
        )
    for index, each in enumerate(program.inputs):
        for dim in range(len(each.sizes)):
            yield _fitted(
                replace(program, inputs=_put(program.inputs, index, _without_dimension(each, dim)))
            )


def _without_dimension(each: Input, dim: int) -> Input:
    sizes, strides = (
        each.sizes[:dim] + each.sizes[dim + 1 :],
        each.strides[:dim] + each.strides[dim + 1 :],
    )
    return replace(each, sizes=sizes, strides=strides)


def shrink_sizes(program: Program) -> Iterator[Program]:
    """Make a size smaller wherever it occurs, in inputs and in the arguments of instructions; then in one input alone."""
    sizes = sorted(
        {size for each in program.inputs for size in each.sizes if size > 1}, reverse=True
    )
    for size in sizes:
        for smaller in dict.fromkeys((1, 2, size // 2, size - 1)):
            if smaller < size:
                yield from _resized(program, size, smaller)
    for index, each in enumerate(program.inputs):
        for dim, size in enumerate(each.sizes):
            for smaller in dict.fromkeys((0, 1, 2, size // 2, size - 1)):
                if 0 <= smaller < size:
                    changed = replace(each, sizes=_put(each.sizes, dim, smaller))
                    yield _fitted(
                        replace(
                            program,
                            inputs=_put(program.inputs, index, _dense_if_dense(each, changed)),
                        )
                    )


def _resized(program: Program, size: int, smaller: int) -> Iterator[Program]:
    inputs = []
    for each in program.inputs:
        changed = replace(
            each,
            sizes=tuple(smaller if each_size == size else each_size for each_size in each.sizes),
        )
        inputs.append(_dense_if_dense(each, changed))
    resized = replace(program, inputs=tuple(inputs))
    instructions = tuple(
        replace(each, args=_replaced(each.args, size, smaller)) for each in program.instructions
    )
    yield _fitted(replace(resized, instructions=instructions))
    yield _fitted(resized)


def _replaced(arguments: tuple[Argument, ...], size: int, smaller: int) -> tuple[Argument, ...]:
    """The arguments with the number `size` replaced inside lists (shapes), where it means a size."""
    return tuple(
        tuple(smaller if type(e) is int and e == size else e for e in each)
        if isinstance(each, tuple)
        else each
        for each in arguments
    )


def _dense_if_dense(before: Input, after: Input) -> Input:
    if before.strides == dense_strides(before.sizes):
        return replace(after, strides=dense_strides(after.sizes))
    if before.strides == dense_strides(before.sizes[::-1])[::-1]:
        return replace(after, strides=dense_strides(after.sizes[::-1])[::-1])
    return after


def _fitted(program: Program) -> Program:
    """The program with every storage cut to what its inputs reach."""
    return _trimmed(program, set(range(len(program.storages))))


def _trimmed(program: Program, indices: set[int]) -> Program:
    storages = []
    for index, storage in enumerate(program.storages):
        ends = [
            (each.offset + reach(each.sizes, each.strides)) * each.dtype.itemsize
            for each in program.inputs
            if each.storage == index
        ]
        needed = -(-max(ends, default=0) // storage.dtype.itemsize)
        storages.append(
            replace(storage, length=min(needed, storage.length)) if index in indices else storage
        )
    return replace(program, storages=tuple(storages))


def simplify_constants(program: Program) -> Iterator[Program]:
    """Bring each number in the arguments towards zero."""
    for index, each in enumerate(program.instructions):
        for args in _simpler(each.args):
            assert isinstance(args, tuple)
            yield replace(
                program, instructions=_put(program.instructions, index, replace(each, args=args))
            )
        for position, (key, value) in enumerate(each.kwargs):
            for simpler in _simpler(value):
                kwargs = _put(each.kwargs, position, (key, simpler))
                yield replace(
                    program,
                    instructions=_put(program.instructions, index, replace(each, kwargs=kwargs)),
                )


def _simpler(argument: Argument) -> Iterator[Argument]:
    if isinstance(argument, tuple):
        for index, each in enumerate(argument):
            yield from (_put(argument, index, simpler) for simpler in _simpler(each))
            if type(each) is int:
                yield argument[:index] + argument[index + 1 :]
    elif isinstance(argument, bool):
        if argument:
            yield False
    elif isinstance(argument, int):
        yield from (
            each
            for each in dict.fromkeys((0, 1, 2, -argument, argument - 1))
            if abs(each) <= abs(argument)
        )
    elif isinstance(argument, float):
        yield from (0.0, 1.0)


def rewire_uses(program: Program) -> Iterator[Program]:
    """Use a value that is defined earlier, inputs first, in place of an argument or an output."""
    order = [each.name for each in program.inputs]
    for index, each in enumerate(program.instructions):
        for name in dict.fromkeys(each.refs):
            for earlier in order[: order.index(name)]:
                rewired = Instruction(
                    each.op,
                    tuple(rename(value, {name: earlier}) for value in each.args),
                    tuple((key, rename(value, {name: earlier})) for key, value in each.kwargs),
                    each.results,
                )
                yield replace(program, instructions=_put(program.instructions, index, rewired))
        order.extend(each.results)
    for index, name in enumerate(program.outputs):
        for earlier in order[: order.index(name)]:
            yield replace(program, outputs=_put(program.outputs, index, earlier))


def simplify_seed(program: Program) -> Iterator[Program]:
    """Fill the storages with 1, 2, 3, ..."""
    if program.seed:
        yield replace(program, seed=0)


STEPS: tuple[ReductionStep, ...] = (
    drop_tail,
    drop_instructions,
    results_to_inputs,
    keep_one_output,
    drop_outputs,
    drop_inputs,
    drop_storages,
    separate_storages,
    drop_result_names,
    simplify_ops,
    drop_arguments,
    simplify_dtypes,
    drop_dimensions,
    shrink_sizes,
    simplify_layouts,
    simplify_constants,
    rewire_uses,
    simplify_seed,
)


def _put(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])
