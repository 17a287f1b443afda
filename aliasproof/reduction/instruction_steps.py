"""Steps on instructions and outputs: remove them, or make them plainer."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch

from aliasproof.ir.execution import execute
from aliasproof.ir.lifting import MOST_VALUES, as_inputs
from aliasproof.ir.program import (
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
from aliasproof.ir.regions import reach
from aliasproof.ir.schemas import Facts, Kind, facts, resolve
from aliasproof.ir.values import entries_of, input_tensors, texts_of
from aliasproof.reduction.edits import fractions, put, without, without_undefined

# --- data flow ------------------------------------------------------------------------------------


NOBODY = -1  # the writer of the bytes of an input


@dataclass(slots=True)
class DataFlow:
    """Def-use chains of a run in eager, up to the first instruction that raises.

    `needs[i]` are the instructions that instruction i depends on: those that made the tensors that
    it uses, and those that last wrote the bytes that it reads. `made_by` maps a value to the
    instruction that returned it. `values` are the tensors by name, as they are after the run.
    """

    values: dict[str, torch.Tensor]
    needs: list[set[int]] = field(default_factory=list)
    made_by: dict[str, int] = field(default_factory=dict)
    _writers: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program) -> DataFlow:
        """Run a program on its inputs."""
        tensors = input_tensors(program)
        flow = cls(
            {view.name: tensor for view, tensor in zip(program.inputs, tensors, strict=True)}
        )
        for index, instruction in enumerate(program.instructions):
            known = facts(resolve(instruction.op))
            # Before the call: after it, the last writer may be the call itself.
            needed = flow.dependencies(instruction.refs, _names_read(instruction, known))
            try:
                with torch.no_grad():
                    execute(instruction, flow.values)
            except (RuntimeError, IndexError, ValueError, TypeError):
                return flow
            flow.needs.append(needed)
            flow._note(instruction, known, index)
        return flow

    def _note(self, instruction: Instruction, known: Facts, index: int) -> None:
        self.made_by.update(dict.fromkeys(instruction.results, index))
        fresh = instruction.results if known.kind is Kind.FUNCTIONAL else ()
        for name in (*_names_at(instruction, known.writes), *fresh):
            self._writers_of(self.values[name])[...] = index

    def dependencies(self, used: Iterable[str], read: Iterable[str]) -> set[int]:
        """The instructions that made the values `used`, or last wrote the bytes of those `read`."""
        needed = {self.made_by[name] for name in used if name in self.made_by}
        for name in read:
            needed.update(np.unique(self._writers_of(self.values[name])).tolist())
        return needed - {NOBODY}

    def _writers_of(self, tensor: torch.Tensor) -> npt.NDArray[np.int64]:
        """For each byte of a tensor, the instruction that wrote it last, as a writable view."""
        storage = tensor.untyped_storage()
        known = self._writers.get(storage._cdata)
        if known is None or len(known) != storage.nbytes():  # new, or resized
            known = self._writers[storage._cdata] = np.full(storage.nbytes(), NOBODY)
        return entries_of(
            known, tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.itemsize
        )

    def backward(self, start: Iterable[int]) -> set[int]:
        """These instructions, and all that they depend on."""
        reached: set[int] = set()
        waiting = list(start)
        while waiting:
            index = waiting.pop()
            if index not in reached:
                reached.add(index)
                waiting.extend(self.needs[index])
        return reached

    def neighbourhoods(self, center: int) -> Iterator[set[int]]:
        """The neighbourhoods of an instruction: itself, then one step further in each direction.

        They grow until there is no new neighbour. Both directions count, since in eager a value
        that a wrong write breaks often does not depend on this write.
        """
        neighbours: dict[int, set[int]] = {index: set() for index in range(len(self.needs))}
        for index, needed in enumerate(self.needs):
            neighbours[index] |= needed
            for other in needed:
                neighbours[other].add(index)
        reached, border = {center}, {center}
        while border:
            yield set(reached)
            border = set().union(*(neighbours[index] for index in border)) - reached
            reached |= border


def _names_at(instruction: Instruction, positions: Iterable[int]) -> list[str]:
    """The names that an instruction passes for arguments, by their index in the schema."""
    parameters = resolve(instruction.op)._schema.arguments
    keywords, args = dict(instruction.kwargs), instruction.args
    return [
        name
        for position in positions
        for name in names_in(
            args[position] if position < len(args) else keywords.get(parameters[position].name)
        )
    ]


def _names_read(instruction: Instruction, known: Facts) -> list[str]:
    """The values whose contents an instruction reads."""
    if known.kind is Kind.VIEW:
        return []
    count = len(known.op._schema.arguments)
    return _names_at(
        instruction, (index for index in range(count) if index not in known.overwrites)
    )


# --- removing -------------------------------------------------------------------------------------


def drop_outputs(program: Program) -> Iterator[Program]:
    """Remove one returned value."""
    for index in range(len(program.outputs)):
        yield replace(program, outputs=without(program.outputs, index))


def drop_instructions(program: Program) -> Iterator[Program]:
    """Remove consecutive instructions, from half of the program down to a single one.

    A use of a removed result is removed, too, or rewired to an operand of the instruction.
    """
    count = len(program.instructions)
    for size in fractions(count):
        # From the end: later instructions have fewer users, so they can be removed more often.
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
    # more operands. For several instructions, only one choice: most of their results are unused.
    for choice in range(3 if len(dropped) == 1 else 1):
        names: dict[str, str] = {}
        for instruction in dropped:
            if instruction.results and instruction.refs:
                operand = instruction.refs[min(choice, len(instruction.refs) - 1)]
                # If the operand is a removed result itself, use its replacement.
                names.update(
                    {result: names.get(operand, operand) for result in instruction.results}
                )
        yield shorter.with_names(names)


def results_to_inputs(program: Program) -> Iterator[Program]:
    """Turn results into inputs of the same layout, and remove the instructions that made them.

    From half of the program down to a single instruction. Each input has its own storage, so
    aliases of a result are lost; views are therefore turned one at a time. Layouts are taken from a
    run. If an instruction raises, there are no candidates.
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
            if not turned:
                continue
            storages, inputs = list(program.storages), list(program.inputs)
            calls = [program.instructions[index] for index in sorted(turned)]
            for name in (result for call in calls for result in call.results):
                tensor = flow.values[name]
                layout = tuple(tensor.shape), tensor.stride()
                storages.append(Storage(tensor.dtype, reach(*layout)))
                inputs.append(Input(name, len(storages) - 1, tensor.dtype, *layout))
            kept = (it for index, it in enumerate(program.instructions) if index not in turned)
            yield replace(
                program, storages=tuple(storages), inputs=tuple(inputs), instructions=tuple(kept)
            )


def _is_replaceable(instruction: Instruction, *, views: bool) -> bool:
    # A mutating instruction has another effect than its result, which no input can replace.
    kind = facts(resolve(instruction.op)).kind
    return bool(instruction.results) and (kind is Kind.FUNCTIONAL or (views and kind is Kind.VIEW))


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
            yield unnamed.with_names(names)


def drop_arguments(program: Program) -> Iterator[Program]:
    """Remove optional arguments: keywords, and positional ones at the end."""
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

    Instructions with several results are kept, since no plain op has several.
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
    # Each operand in turn, since the failure may need only the second one.
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
    """Bring each number in the arguments closer to zero, but for an `eps`, which must not be 0."""
    for index, instruction in enumerate(program.instructions):
        for simpler in _with_simpler_constants(instruction):
            if _has_zero_epsilon(instruction) or not _has_zero_epsilon(simpler):
                yield program.with_instruction(index, simpler)


def _with_simpler_constants(instruction: Instruction) -> Iterator[Instruction]:
    for args in _simpler(instruction.args):
        assert isinstance(args, tuple)
        yield replace(instruction, args=args)
    for position, (key, value) in enumerate(instruction.kwargs):
        for simpler in _simpler(value):
            yield replace(instruction, kwargs=put(instruction.kwargs, position, (key, simpler)))


def _has_zero_epsilon(instruction: Instruction) -> bool:
    """Whether an `eps` is 0: then a variance of 0 is divided by, which `F.batch_norm` refuses."""
    names = (argument.name for argument in resolve(instruction.op)._schema.arguments)
    return ("eps", 0) in (*zip(names, instruction.args, strict=False), *instruction.kwargs)


def _simpler(argument: Argument) -> Iterator[Argument]:
    if isinstance(argument, tuple):
        for index, element in enumerate(argument):
            yield from (put(argument, index, simpler) for simpler in _simpler(element))
            if type(element) is int:  # a size in a shape, or a dimension of a reduction
                yield without(argument, index)
    elif isinstance(argument, bool):  # before int, since a bool is an int
        if argument:
            yield False
    elif isinstance(argument, int):
        # Larger numbers too: with 0, a call may change nothing, or return no elements.
        yield from dict.fromkeys((0, 1, 2, -argument, argument // 2, argument - 1))
    elif isinstance(argument, float):
        yield from (0.0, 1.0, 2.0)


def enlarge_empty_results(program: Program) -> Iterator[Program]:
    """Replace two numbers 0 or 1 of a call by larger ones at the same time.

    `unfold(x, 0, 0, 1)` has empty windows. With size 1 and step 2 the windows have elements, and
    still leave some of `x` out.
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
    """Replace an argument or an output by a value that is defined earlier, inputs first."""
    order = [view.name for view in program.inputs]
    for index, instruction in enumerate(program.instructions):
        for name in dict.fromkeys(instruction.refs):
            for earlier in order[: order.index(name)]:
                names = {name: earlier}
                args = tuple(rename(value, names) for value in instruction.args)
                kwargs = tuple((key, rename(value, names)) for key, value in instruction.kwargs)
                rewired = replace(instruction, args=args, kwargs=kwargs)
                yield program.with_instruction(index, rewired)
        order.extend(instruction.results)  # only now: an instruction cannot use its own results
    for index, name in enumerate(program.outputs):
        for earlier in order[: order.index(name)]:
            yield replace(program, outputs=put(program.outputs, index, earlier))


# --- autograd -------------------------------------------------------------------------------------


def plain_gradients(program: Program) -> Iterator[Program]:
    """Let calls run with gradients, and compute inputs from leaves: all of them, then single ones.

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


# --- slices ---------------------------------------------------------------------------------------
#
# Each step tries halves of the program first, then quarters, and so on. So a long program is short
# after a few checks, if the failure needs few of its instructions.


def cut_tail(program: Program) -> Iterator[Program]:
    """Cut off instructions at the end: all, half of them, a quarter, down to one.

    Return the remaining outputs; then also all values that the removed instructions used, since a
    wrong value may have reached an output only through them.
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
    """Keep some outputs and their dependencies: no outputs, all, halves, down to one."""
    outputs = program.outputs
    flow = DataFlow.of(program)
    if len(flow.needs) < len(program.instructions):  # an instruction raises
        return
    yield replace(program, outputs=())
    yield _with_dependencies(program, flow, ())
    yield _with_dependencies(program, flow, outputs)
    for size in fractions(len(outputs)):
        # The last outputs first: a value defined late depends on more of the program.
        for end in range(len(outputs), 0, -size):
            part = outputs[max(end - size, 0) : end]
            yield _with_dependencies(program, flow, part)
            yield replace(program, outputs=part)


def _with_dependencies(program: Program, flow: DataFlow, outputs: tuple[str, ...]) -> Program:
    """The program with these outputs and what they depend on; without outputs, writes to inputs."""
    names = outputs or tuple(view.name for view in program.inputs)
    kept = flow.backward(flow.dependencies(names, names))
    instructions = tuple(
        instruction for index, instruction in enumerate(program.instructions) if index in kept
    )
    return replace(program, instructions=instructions, outputs=outputs)


def keep_neighbourhood(program: Program) -> Iterator[Program]:
    """Keep the last instruction and those near it in the data flow.

    After `cut_tail`, the failure needs the last instruction.
    """
    count = len(program.instructions)
    flow = DataFlow.of(program)
    if not 2 < count == len(flow.needs):
        return
    for near in flow.neighbourhoods(count - 1):
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
    """Only these instructions, with the other values that they use as inputs.

    First with the view ops between such a value and its base. Then without them: views become
    inputs, too, and share storages as in the run.
    """
    yield _extract(program, flow, _with_views(program, flow, kept))
    yield _extract(program, flow, kept)


def _with_views(program: Program, flow: DataFlow, kept: Collection[int]) -> set[int]:
    """These instructions, and the view ops that make the values that they use."""
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
    calls = [program.instructions[index] for index in sorted(kept)]
    cut, names = _cut(program, calls, flow.values)
    made = [result for call in calls for result in call.results]
    shown = {*made, *(view.name for view in cut.inputs)}
    outputs = tuple(names[name] for name in program.outputs if names[name] in shown)
    if program.outputs and not outputs:  # a wrong value must reach some output
        outputs = tuple(made)
    return replace(cut, outputs=outputs)


def _cut(
    program: Program, calls: Sequence[Instruction], values: dict[str, torch.Tensor]
) -> tuple[Program, dict[str, str]]:
    """The program of only these calls, on values of a run; and its name for each value.

    An in-place op returns its argument. If the op is removed, the argument replaces its result:
    `values` are in the order of their definition, so the argument is the tensor's first name.
    """
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(tensor), name) for name, tensor in values.items()}
    made = {result for call in calls for result in call.results}
    names |= {name: name for name in made}
    renamed = tuple(rename_instruction(call, names) for call in calls)
    used = {name for call in renamed for name in call.refs} - made
    inputs, storages = as_inputs({name: it for name, it in values.items() if name in used})
    return replace(program, storages=storages, inputs=inputs, instructions=renamed), names


# --- windows --------------------------------------------------------------------------------------
#
# `keep_window`: half of the instructions, consecutive, on the values that eager computed before
# them.
#
# A compile of 2,000 instructions costs a hundred times as much as one of 20. Steps that cut one end
# after the other check programs of nearly the full length until they are done. A window is half as
# long, and the next one a quarter: all checks together cost about three compiles of the whole. It
# also works for failures that no value shows, such as errors. (Delta debugging by levels: Misherghi
# and Su, "HDD", ICSE 2006; the levels here are halves of the program, since it has no tree.)


SHORTEST = 16  # instructions: for fewer, the other steps need few checks


def keep_window(program: Program) -> Iterator[Program]:
    """Keep the first half of the instructions, the last, or the half in the middle.

    The values that a window uses become inputs, with their layouts and sharing in eager; first with
    the values of the fill, then with those of eager. Values that are used later are returned.
    """
    count = len(program.instructions)
    if count < SHORTEST:
        return
    half = -(-count // 2)
    for start in (0, count - half, (count - half) // 2):
        flow = DataFlow.of(replace(program, instructions=program.instructions[:start]))
        if len(flow.needs) < start:  # an instruction before it raises
            return
        cut, names = _cut(program, program.instructions[start : start + half], flow.values)
        made = [result for call in cut.instructions for result in call.results]
        later = {name for call in program.instructions[start + half :] for name in call.refs}
        returned = [names.get(name, name) for name in program.outputs]
        shown = {*made, *({view.name for view in cut.inputs} & {*returned})}
        live = [*returned, *(name for name in made if name in later)]
        plain = replace(cut, outputs=tuple(dict.fromkeys(name for name in live if name in shown)))
        yield plain
        given = [flow.values[view.name] for view in cut.inputs]
        contents = _contents(cut.inputs, cut.storages, given)
        if contents is not None:
            yield replace(plain, storages=contents)


def _contents(
    inputs: Sequence[Input], storages: Sequence[Storage], tensors: Sequence[torch.Tensor]
) -> tuple[Storage, ...] | None:
    """The storages with the values of these tensors; None if there are too many values."""
    made = list(storages)
    if sum(storage.length for storage in storages) > MOST_VALUES:
        return None
    for view, tensor in zip(inputs, tensors, strict=True):
        storage = storages[view.storage]
        whole = tensor.untyped_storage()
        if storage.values or storage.nbytes != whole.nbytes() or not storage.length:
            continue
        buffer = torch.empty(0, dtype=storage.dtype, device=tensor.device)
        buffer = buffer.set_(whole, 0, (storage.length,), (1,))
        made[view.storage] = replace(storage, values=texts_of(buffer))
    return tuple(made)
