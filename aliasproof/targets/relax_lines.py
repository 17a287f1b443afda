"""A Relax function before it is built: its lines, and the module that a `BlockBuilder` makes of it.

Tuples are bound as early as their fields are there, and a field of a tuple is taken anew at each
use: Relax allows both, and its passes must keep track of what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import tvm
from torch._ops import OpOverload
from tvm import relax
from tvm.relax import op as R

from aliasproof.programs.errors import Rejected

Expression: TypeAlias = Any  # of Relax, whose types are made at run time

DTYPES = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
    )
}
OPAQUE = "aliasproof."  # begins the name of a packed function that calls ATen


@dataclass(eq=False, slots=True)
class RelaxParameter:
    """A parameter of the function."""

    sizes: Sequence[int]
    dtype: torch.dtype


@dataclass(eq=False, slots=True)
class Line:
    """A binding: `make` gives its expression from those of its operands."""

    make: Callable[..., Expression]
    operands: Sequence[Value]


@dataclass(frozen=True, slots=True)
class Item:
    """A field of a line that is a tuple."""

    line: Line
    index: int


Value: TypeAlias = RelaxParameter | Line | Item


@dataclass(frozen=True, slots=True)
class OpaqueCall:
    """An ATen call that Relax sees as a packed function.

    `template` are its arguments, with an `OperandPlace` for each tensor. It returns the new
    contents of the operands with the indices in `written`, then the results with those in
    `results`. Without `several`, the ATen call returns one tensor.
    """

    op: OpOverload
    template: tuple[Any, Any]
    written: tuple[int, ...]
    results: tuple[int, ...]
    several: bool = False


@dataclass(frozen=True, slots=True)
class OperandPlace:
    """The place of a tensor among the operands of an opaque call."""

    index: int


@dataclass(slots=True)
class Lines:
    """The lines of a function, in their order.

    `opaque` has what its packed functions do, by their names. `numbers` has the numbers that are
    constants without dims, with the tensors, by the addresses of these.
    """

    lines: list[Line] = field(default_factory=list)
    opaque: dict[str, OpaqueCall] = field(default_factory=dict)
    numbers: dict[int, tuple[float, torch.Tensor]] = field(default_factory=dict)

    def number(self, number: float, dtype: torch.dtype) -> Expression:
        """A number as an operand."""
        tensor = torch.tensor(number, dtype=dtype)
        self.numbers[tensor.data_ptr()] = number, tensor
        return constant(tensor)

    def add(self, make: Callable[..., Expression], *operands: Value) -> Line:
        """Add a line at the end."""
        line = Line(make, operands)
        self.lines.append(line)
        return line

    def reshaped(self, value: Value, sizes: Sequence[int]) -> Line:
        """Add the value with other sizes. Raises `Rejected` for a size of 0."""
        if 0 in sizes:  # as in `numpy.reshape` of MXNet
            raise Rejected("reshape of Relax takes a size of 0 for the size of its operand")
        return self.add(lambda it: R.reshape(it, tuple(sizes)), value)

    def sliced(self, vector: Value, start: int, end: int) -> Line:
        """Add a part of a vector."""
        return self.add(lambda it: R.strided_slice(it, [0], [start], [end]), vector)

    def tuple(self, fields: Sequence[Value]) -> Line:
        """Add a tuple, as early as possible."""
        line = Line(lambda *made: relax.Tuple(list(made)), fields)
        of = {it.line if isinstance(it, Item) else it for it in fields}
        at = max((i for i, it in enumerate(self.lines, 1) if it in of), default=0)
        self.lines.insert(at, line)
        return line

    def module(self, parameters: Sequence[RelaxParameter], outputs: Sequence[Value]) -> Any:
        """The module, with the function `main`: one dataflow block, which returns a tuple."""
        made: dict[Value, Expression] = {
            it: relax.Var(f"p{index}", type_of(it.sizes, it.dtype))
            for index, it in enumerate(parameters)
        }
        builder = relax.BlockBuilder()

        def use(value: Value) -> Expression:
            if isinstance(value, Item):
                return builder.emit(relax.TupleGetItem(made[value.line], value.index))
            return made[value]

        with builder.function("main", [made[it] for it in parameters]):
            with builder.dataflow():
                for line in self.lines:
                    made[line] = builder.emit(line.make(*map(use, line.operands)))
                result = builder.emit_output(relax.Tuple([use(value) for value in outputs]))
            builder.emit_func_output(result)
        return builder.finalize()


def type_of(sizes: Sequence[int], dtype: torch.dtype) -> Any:
    """The type of a tensor. Raises `Rejected` for a dtype that Relax does not have."""
    if dtype not in DTYPES:
        raise Rejected(f"Relax has no tensors of {dtype}")
    return relax.TensorType(tuple(sizes), DTYPES[dtype])


def constant(tensor: torch.Tensor) -> Expression:
    """A constant that shares the memory of a tensor, which must be contiguous."""
    return relax.const(tvm.runtime.from_dlpack(tensor))
