"""What a program computes in eager, call by call: marks ask about its numbers.

A compiler that computes int64 in 32 bits is wrong for numbers beyond these, and for no others. So
a mark on the numbers takes what is that bug, where one on dtypes takes all that is wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from aliasproof.ir.execution import call, seed_generators
from aliasproof.ir.program import Instruction, Program, Ref
from aliasproof.ir.values import clone_inputs, input_tensors

COMPARISONS = (
    *("eq", "ne", "lt", "le", "gt", "ge", "greater", "greater_equal", "less", "less_equal"),
    *("not_equal", "logical_not", "logical_and", "logical_or", "logical_xor"),
)
SHORT = (torch.int8, torch.uint8, torch.int16)
REFUSED = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


class ComputedCall(NamedTuple):
    """A call with its operands by name, as they were before it, and what it returned."""

    instruction: Instruction
    operands: dict[str, torch.Tensor]
    results: list[torch.Tensor]

    @property
    def name(self) -> str:
        """The op, such as 'add_'."""
        return self.instruction.op.split(".")[1]

    def argument(self, position: int) -> torch.Tensor | None:
        """The tensor that is passed at a position, if one is."""
        args = self.instruction.args
        passed = args[position] if position < len(args) else None
        return self.operands[passed.name] if isinstance(passed, Ref) else None

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All that it read or returned."""
        return [*self.operands.values(), *self.results]


@functools.lru_cache(maxsize=16)
def computed_calls(program: Program) -> tuple[ComputedCall, ...]:
    """The calls of a program; up to the one that raises, if one does."""
    return tuple(_run(program))


def computes(holds: Callable[[ComputedCall], bool], *names: str) -> Callable[[Program], bool]:
    """Whether a call of a program, of one of these ops if some are named, has a property."""
    return lambda program: any(
        holds(made) for made in computed_calls(program) if not names or made.name in names
    )


def _run(program: Program) -> Iterator[ComputedCall]:
    seed_generators()
    tensors = input_tensors(program)
    values = {view.name: x for view, x in zip(program.inputs, tensors, strict=True)}
    for instruction in program.instructions:
        copies = clone_inputs([values[name] for name in instruction.refs])
        read = dict(zip(instruction.refs, copies, strict=True))
        try:
            returned = call(instruction, values)
        except REFUSED:  # a target may take it
            return
        values.update(zip(instruction.results, returned, strict=False))
        yield ComputedCall(instruction, read, clone_inputs(returned))


# --- what marks ask of a call ---------------------------------------------------------------------


def exceeds(bits: int) -> Callable[[ComputedCall], bool]:
    """Whether the call has an int64 number that needs more bits, without its sign."""

    def does(made: ComputedCall) -> bool:
        longs = (x for x in made.tensors if x.dtype == torch.int64 and x.numel() > 0)
        return any(int(x.max()) >= 2**bits or int(x.min()) < -(2**bits) for x in longs)

    return does


def wraps(made: ComputedCall) -> bool:
    """Whether the call, made with more bits, gives other numbers than with short integers."""
    wide = {name: x.long() if x.dtype in SHORT else x for name, x in made.operands.items()}
    try:
        exact = call(made.instruction, wide)
    except REFUSED:  # it asks for the dtypes as they are
        return False
    return any(
        y.dtype in SHORT and not torch.equal(y.long(), z.long())
        for y, z in zip(made.results, exact, strict=False)
    )


def reads_nan(made: ComputedCall) -> bool:
    """Whether an operand holds NaN."""
    operands = (x.float() if x.is_floating_point() else x for x in made.operands.values())
    return any(bool(x.isnan().any()) for x in operands)


def takes_nan_for_bool(made: ComputedCall) -> bool:
    """Whether the call makes bool of NaN; in place, of the dtype that is written."""
    of_bool = (
        any(y.dtype == torch.bool for y in made.results)
        or made.name.removesuffix("_") in COMPARISONS
    )
    return reads_nan(made) and of_bool
