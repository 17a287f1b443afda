"""`keep_window`: half of the instructions, in a row, on what eager had computed until there.

A compile of 2,000 instructions costs a hundred times what one of 20 costs. Steps that cut one end
after the other ask about programs of nearly the full length until they are done. A window is half
as long, and the next one a quarter: all questions together cost about three compiles of the whole.
It also holds for failures that no value shows, such as errors. (Delta debugging by levels:
Misherghi and Su, "HDD", ICSE 2006; the levels here are halves of the program, since it has no
tree.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from aliasproof.ir.execution import execute
from aliasproof.ir.lifting import MOST_VALUES, as_inputs
from aliasproof.ir.program import Input, Program, Storage, rename_instruction
from aliasproof.ir.storages import texts_of
from aliasproof.ir.values import input_tensors

SHORTEST = 16  # instructions: the other steps take few questions then


def keep_window(program: Program) -> Iterator[Program]:
    """Keep one half of the instructions, the other, or the half in the middle.

    What a window uses becomes inputs with the layouts and the sharing that eager had at its start;
    first with the values of the fill, then with those of eager. It returns what is used after it.
    """
    count = len(program.instructions)
    if count < SHORTEST:
        return
    half = -(-count // 2)
    for start in (0, count - half, (count - half) // 2):
        values = _values_at(program, start)
        if values is None:  # an instruction before it raises
            return
        yield from _windows(program, start, start + half, values)


def _values_at(program: Program, start: int) -> dict[str, torch.Tensor] | None:
    """The values of a run in eager before an instruction; None if an earlier one raises."""
    tensors = input_tensors(program)
    values = {view.name: tensor for view, tensor in zip(program.inputs, tensors, strict=True)}
    try:
        with torch.no_grad():
            for instruction in program.instructions[:start]:
                execute(instruction, values)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None
    return values


def _windows(
    program: Program, start: int, end: int, values: dict[str, torch.Tensor]
) -> Iterator[Program]:
    """The instructions from `start` to `end` on these values."""
    # An op in place returns its argument: one name per tensor, the first.
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(tensor), name) for name, tensor in values.items()}
    window = [rename_instruction(call, names) for call in program.instructions[start:end]]
    made = {result for call in window for result in call.results}
    used = {name for call in window for name in call.refs} - made
    later = {name for call in program.instructions[end:] for name in call.refs}
    returned = [names.get(name, name) for name in program.outputs]
    live = [*returned, *(name for call in window for name in call.results if name in later)]
    shown = made | (used & set(returned))
    outputs = tuple(dict.fromkeys(name for name in live if name in shown))
    given = {name: tensor for name, tensor in values.items() if name in used}
    inputs, storages = as_inputs(given)
    plain = replace(
        program, storages=storages, inputs=inputs, instructions=tuple(window), outputs=outputs
    )
    yield plain
    contents = _contents(inputs, storages, list(given.values()))
    if contents is not None:
        yield replace(plain, storages=contents)


def _contents(
    inputs: Sequence[Input], storages: Sequence[Storage], tensors: Sequence[torch.Tensor]
) -> tuple[Storage, ...] | None:
    """The storages with the values of these inputs; None if they are too long for that."""
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
