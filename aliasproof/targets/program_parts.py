"""Which instructions of a program a control flow operator can run.

A *part* is a run of consecutive instructions. What it uses from before are its operands, what is
used after it are its results. An operator of torch takes parts under conditions on what shares a
storage, so the program is run once to see that.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import execute
from aliasproof.ir.program import Instruction, Program, rename_instruction
from aliasproof.ir.regions import Region, overlaps_itself
from aliasproof.ir.schemas import Kind, facts, resolve
from aliasproof.ir.values import input_tensors


@dataclass(frozen=True, slots=True)
class Part:
    """The instructions from `start` to `stop`, with the names that they read and leave."""

    start: int
    stop: int
    operands: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """What an operator demands of a part, and where torch says so.

    `apart`: no two operands share a storage. `pure`: no operand is written, the part draws no
    numbers and has a result. `carries`: its results have the strides of contiguous tensors, so that
    each step gets what it leaves. All operators demand that a result is dense, and that it shares a
    storage neither with an operand nor with another result. If no operand is written, no two share
    one.
    """

    apart: bool = False
    pure: bool = False
    carries: bool = False


@dataclass(frozen=True, slots=True)
class RunValues:
    """What a run showed: values by name, and their storages.

    The tensors are kept, so no storage is freed and its number used again.
    """

    values: Mapping[str, torch.Tensor]
    storages: Mapping[str, int]

    @classmethod
    def of(cls, program: Program) -> RunValues:
        """Run the program on its own inputs. Raises `Rejected` where eager raises."""
        names = [view.name for view in program.inputs]
        values = dict(zip(names, input_tensors(program), strict=True))
        storages = {name: _storage(value) for name, value in values.items()}
        try:
            # The run that is compared draws the first random numbers.
            with torch.random.fork_rng(devices=[]):
                for instruction in program.instructions:
                    execute(instruction, values)
                    storages |= {name: _storage(values[name]) for name in instruction.results}
        except Exception as error:  # what eager raises is not compared, so any error will do
            raise Rejected(f"eager raises {type(error).__name__}: {error}") from error
        return cls(values, storages)

    def overlapping(self, name: str) -> bool:
        """Whether two elements of a value are at one location."""
        return overlaps_itself(Region.of(self.values[name]))

    def dense(self, name: str) -> bool:
        """Whether the strides of a value follow from its sizes and their order.

        "It seems one of cond's output stride is not a simple accumulative multiplication of sizes"
        (torch/_higher_order_ops/cond.py). Without elements, fake tensors have other strides.
        """
        value, expected = self.values[name], 1
        for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
            if stride != expected:
                return False
            expected *= size
        return value.numel() > 0

    def contiguous(self, name: str) -> bool:
        """Whether the strides of a value are those of a new tensor of its sizes."""
        value = self.values[name]
        return value.numel() > 0 and value.stride() == value.new_empty(value.shape).stride()

    def has_scattered_out(self, call: Instruction) -> bool:
        """Whether an `out=` tensor is not contiguous.

        Dynamo breaks the graph there, and no operator has a part outside of the graph ("Attempted
        to call op with non-contiguous `out=` tensor" in torch/_dynamo/variables/torch.py).
        """
        if facts(resolve(call.op)).kind is not Kind.OUT:
            return False
        return not all(self.values[name].is_contiguous() for name in call.written)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def chosen_part(program: Program, seen: RunValues, demand: Demand, leading_views: int) -> Part:
    """The largest part that meets the demand, the first one of these; if possible, one that writes.

    With three instructions or more, the last one stays outside, so that something reads what the
    part leaves. `leading_views` instructions stay outside, too. Raises `Rejected` if there is none.
    """
    count = len(program)
    stop = count - 1 if count - leading_views >= 3 else count
    bounds = sorted(
        itertools.combinations(range(leading_views, stop + 1), 2),
        key=lambda pair: (pair[0] - pair[1], pair[0]),
    )
    parts = (part_between(program, *pair) for pair in bounds)
    met = [part for part in parts if _meets(part, program, seen, demand)]
    if not met:
        raise Rejected("no part of the program is permitted inside of the operator")
    return next((part for part in met if written_operands(part, program, seen)), met[0])


def leading_views(program: Program) -> int:
    """How many instructions come before the first one that is no view."""
    kinds = [facts(resolve(instruction.op)).kind for instruction in program.instructions]
    return next((index for index, kind in enumerate(kinds) if kind is not Kind.VIEW), 0)


def part_between(program: Program, start: int, stop: int) -> Part:
    """The part with these bounds."""
    inside = program.instructions[start:stop]
    made = {name for call in inside for name in call.results}
    used = dict.fromkeys(name for call in inside for name in call.refs if name not in made)
    later = {name for instruction in program.instructions[stop:] for name in instruction.refs}
    later |= {*program.outputs}
    results = [name for call in inside for name in call.results if name in later]
    return Part(start, stop, tuple(used), tuple(results))


def _meets(part: Part, program: Program, seen: RunValues, demand: Demand) -> bool:
    inside = program.instructions[part.start : part.stop]
    operands = [seen.storages[name] for name in part.operands]
    written = bool(written_operands(part, program, seen))
    results = [seen.storages[name] for name in part.results]
    return (
        bool(operands)
        and len({*results}) == len(results)
        and not {*results} & {*operands}
        and not any(map(changes_metadata, inside))
        and not any(seen.has_scattered_out(call) for call in inside)
        and ((written and not demand.apart) or len({*operands}) == len(operands))
        and (not demand.pure or (bool(results) and not written and not any(map(draws, inside))))
        and all(map(seen.contiguous if demand.carries else seen.dense, part.results))
    )


def draws(instruction: Instruction) -> bool:
    """Whether a call draws random numbers: other ones each time."""
    return facts(resolve(instruction.op)).random


def changes_metadata(instruction: Instruction) -> bool:
    """Whether the call changes sizes, strides, the storage or the history of an argument."""
    op = resolve(instruction.op)
    changing = ("set_", "resize_", "resize_as_", "detach_", "requires_grad_")
    return torch.Tag.inplace_view in op.tags or op.overloadpacket.__name__ in changing


def written_operands(part: Part, program: Program, seen: RunValues) -> list[str]:
    """The operands on a storage that the part writes."""
    inside = program.instructions[part.start : part.stop]
    written = {seen.storages[name] for call in inside for name in call.written}
    return [name for name in part.operands if seen.storages[name] in written]


def repeated(program: Program, part: Part) -> Program:
    """The program that runs the part twice. What follows uses the results of the second time."""
    inside = program.instructions[part.start : part.stop]
    made = [name for call in inside for name in call.results]
    first = {name: f"{name}_first" for name in made}
    instructions = (
        *program.instructions[: part.start],
        *(rename_instruction(call, first) for call in inside),
        *program.instructions[part.start :],
    )
    return replace(program, instructions=instructions)
