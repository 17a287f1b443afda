"""`DataFlow`: which instruction of a program depends on which, byte by byte, in a run in eager."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from aliasproof.ir.execution import execute
from aliasproof.ir.program import Instruction, Program, names_in
from aliasproof.ir.schemas import Facts, Kind, facts, resolve
from aliasproof.ir.storages import entries_of
from aliasproof.ir.values import input_tensors

NOBODY = -1  # what wrote the bytes of an input


@dataclass(slots=True)
class DataFlow:
    """A run of a program in eager, up to the first instruction that raises.

    `needs[i]` are the instructions that instruction i depends on: those that made the tensors which
    it uses, and those that last wrote the bytes which it reads. `made_by` has the instruction that
    a value is a result of. `values` are the tensors by name, as the run left them.
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
            # Before the call: afterwards its own writes would count.
            needed = flow.behind(instruction.refs, _names_read(instruction, known))
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

    def behind(self, used: Iterable[str], read: Iterable[str]) -> set[int]:
        """What made the values `used`, and what last wrote the bytes of the values `read`."""
        needed = {self.made_by[name] for name in used if name in self.made_by}
        for name in read:
            needed.update(np.unique(self._writers_of(self.values[name])).tolist())
        return needed - {NOBODY}

    def _writers_of(self, tensor: torch.Tensor) -> npt.NDArray[np.int64]:
        """For each byte of a tensor, the instruction that wrote it last; a view."""
        storage = tensor.untyped_storage()
        known = self._writers.get(storage._cdata)
        if known is None or len(known) != storage.nbytes():  # new, or resized
            known = self._writers[storage._cdata] = np.full(storage.nbytes(), NOBODY)
        return entries_of(
            known, tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.itemsize
        )

    def backward(self, start: Iterable[int]) -> set[int]:
        """The instructions that these depend on, and these."""
        reached: set[int] = set()
        waiting = list(start)
        while waiting:
            index = waiting.pop()
            if index not in reached:
                reached.add(index)
                waiting.extend(self.needs[index])
        return reached

    def around(self, center: int) -> Iterator[set[int]]:
        """The neighbourhoods of an instruction: itself, then one step further in each direction.

        They grow until one has no neighbours. Both directions count, since a wrong write often
        stands beside what it breaks, and not behind it.
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
    """The names that an instruction passes for the arguments with these indices in the schema."""
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
