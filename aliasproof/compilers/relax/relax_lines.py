"""A Relax function before it is built: its lines, and the module that a `BlockBuilder` makes of it.

Tuples are bound as soon as their fields exist, and a field of a tuple is taken anew at each use:
Relax allows both, and its passes must track the aliases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import tvm
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map
from tvm import relax
from tvm.relax import op as R

from aliasproof.compilers.relax.patches import Spelling
from aliasproof.ir.errors import Rejected

# --- relax moves ----------------------------------------------------------------------------------
#
# Operators of Relax that move elements, as ATen calls, and those that the VM turns into views.
#
# `RewriteDataflowReshape` proves for each kernel of any operator whether it copies the elements of
# its operand in their order; then the result shares the memory of the operand.


aten = torch.ops.aten
RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten")


def shape_of(of: Any) -> list[int]:
    """The sizes in the type of a tensor."""
    return [int(size) for size in of.shape]


def _permuted(call: Any, sizes: list[int]) -> tuple[Any, list[Any]]:
    axes = call.attrs.axes
    order = reversed(range(len(sizes))) if axes is None else map(int, axes)
    return aten.permute.default, [list(order)]


def _sliced(call: Any, sizes: list[int]) -> tuple[Any, list[Any]]:
    (dim,), (start,), (end,), *step = map(integers, call.args[1:])
    return aten.slice.Tensor, [dim, start, end, *(step[0] if step else [])]


# From a call and the sizes of its result: the ATen call, and its arguments after the operand.
MOVES: dict[str, Callable[[Any, list[int]], tuple[Any, list[Any]]]] = {
    **dict.fromkeys(RESHAPES, lambda call, sizes: (aten.reshape.default, [sizes])),
    "astype": lambda call, sizes: (aten.reshape.default, [sizes]),  # of equal dtypes
    "broadcast_to": lambda call, sizes: (aten.expand.default, [sizes]),
    "permute_dims": _permuted,
    "strided_slice": _sliced,
    "tile": lambda call, sizes: (aten.repeat.default, [integers(call.attrs.repeats)]),
    "flip": lambda call, sizes: (aten.flip.default, [[int(call.attrs.axis)]]),
    "concat": lambda call, sizes: (aten.cat.default, [int(call.attrs.axis)]),
    "stack": lambda call, sizes: (aten.stack.default, [int(call.attrs.axis)]),
}


# An operator with this number is removed from its kernel, which then only copies.
NEUTRAL = {"multiply": 1, "divide": 1, "add": 0, "subtract": 0}


def keeps_order(name: str, call: Any, sizes: list[int]) -> bool:
    """Whether the call returns all elements of its only operand in order: a view in the VM."""
    if name in RESHAPES:
        return True
    of = call.args[0].ty
    if name == "astype" and of.dtype != call.attrs.dtype:
        return False
    joined = name in ("concat", "stack")
    if joined and len(of.fields) > 1:
        return False
    before = shape_of(of.fields[0] if joined else of)
    if math.prod(before) != math.prod(sizes):
        return False
    numbers = torch.arange(math.prod(sizes))
    op, rest = MOVES[name](call, sizes)
    operand = numbers.reshape(before)
    moved = op([operand] if joined else operand, *rest)
    return torch.equal(moved.reshape(-1), numbers)


def integers(value: Any) -> Any:
    """The numbers of an attribute or a tuple of Relax, as a list; or one number."""
    if isinstance(value, relax.Tuple):
        return [integers(it) for it in value.fields]
    if isinstance(value, tvm.tirx.IntImm):
        return int(value.value)
    return [int(it) for it in value] if hasattr(value, "__len__") else int(value)


# --- relax lines ----------------------------------------------------------------------------------


Expression: TypeAlias = Any  # of Relax, whose types are made at run time

DTYPES = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
    )
}
IN_PLACE = ".in_place"  # suffix of the name of a function that computes into an operand
OPAQUE = "aliasproof."  # prefix of the name of a packed function that calls ATen


@dataclass(eq=False, slots=True)
class RelaxParameter:
    """A parameter of the function."""

    sizes: Sequence[int]
    dtype: torch.dtype


@dataclass(eq=False, slots=True)
class Line:
    """A binding: `make` returns its expression, given those of its operands.

    It may be a `constant`. `fresh` says that it has its own memory. `consuming` returns the same
    expression, which takes the memory of the operand with the index `consumed` for its result.
    """

    make: Callable[..., Expression]
    operands: Sequence[Value]
    constant: torch.Tensor | None = None
    fresh: bool = False
    consuming: Callable[..., Expression] | None = None
    consumed: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """A field of a line that is a tuple."""

    line: Line
    index: int


Value: TypeAlias = RelaxParameter | Line | Item


@dataclass(frozen=True, slots=True)
class OpaqueCall:
    """An ATen call that Relax sees as a packed function.

    `template` has its arguments, with an `OperandPlace` for each tensor. The function returns the
    new contents of the operands with the indices in `written`, then the results with the indices in
    `results`. Without `several`, the ATen call returns one tensor.
    """

    op: OpOverload
    template: tuple[Any, Any]
    written: tuple[int, ...]
    results: tuple[int, ...]
    several: bool = False

    @property
    def operands(self) -> int:
        """How many tensors it takes."""
        return len({it for it in tree_leaves(self.template) if isinstance(it, OperandPlace)})

    def arguments(self, operands: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Its arguments, with these operands as its tensors."""
        args, kwargs = tree_map(
            lambda it: operands[it.index] if isinstance(it, OperandPlace) else it, self.template
        )
        return args, kwargs


@dataclass(frozen=True, slots=True)
class OperandPlace:
    """The place of a tensor among the operands of an opaque call."""

    index: int


@dataclass(slots=True)
class Lines:
    """The lines of a function, in their order.

    `opaque` maps the names of packed functions to their calls. `numbers` has the constants without
    dims, with their tensors, by the addresses of these. `given` are constants that are passed as
    arguments after the parameters.
    """

    spelling: Spelling
    lines: list[Line] = field(default_factory=list)
    opaque: dict[str, OpaqueCall] = field(default_factory=dict)
    numbers: dict[int, tuple[float, torch.Tensor]] = field(default_factory=dict)
    given: list[torch.Tensor] = field(default_factory=list)

    def constant(self, tensor: torch.Tensor) -> Line:
        """Add a copy of a tensor as a constant."""
        copied = tensor.detach().clone(memory_format=torch.contiguous_format)
        line = Line(lambda: constant(copied), (), copied)
        self.lines.append(line)
        return line

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

    def tuple(self, fields: Sequence[Value]) -> Line:
        """Add a tuple, as early as possible."""
        line = Line(lambda *made: relax.Tuple(list(made)), fields)
        of = {it.line if isinstance(it, Item) else it for it in fields}
        at = max((i for i, it in enumerate(self.lines, 1) if it in of), default=0)
        self.lines.insert(len(self.lines) if self.spelling.tuples_late else at, line)
        return line

    def module(self, parameters: Sequence[RelaxParameter], outputs: Sequence[Value]) -> Any:
        """The module, with the function `main`: one dataflow block, which returns a tuple."""
        return _ModuleOfLines(self, parameters, outputs).build()


class _ModuleOfLines:
    """The module while it is built. `made` has the expressions of values."""

    def __init__(
        self, lines: Lines, parameters: Sequence[RelaxParameter], outputs: Sequence[Value]
    ) -> None:
        self.lines, self.outputs, self.builder = lines, outputs, relax.BlockBuilder()
        self.made: dict[Value, Expression] = {
            it: relax.Var(f"p{index}", type_of(it.sizes, it.dtype))
            for index, it in enumerate(parameters)
        }
        spelling = lines.spelling
        if spelling.results_given if spelling.by_functions else spelling.constants_given:
            constants = [it for it in lines.lines if it.constant is not None]
            lines.given = [it.constant for it in constants if it.constant is not None]
            for index, it in enumerate(constants):
                self.made[it] = relax.Var(f"c{index}", constant(lines.given[index]).ty)

    def build(self) -> Any:
        """The module."""
        with self.builder.function("main", list(self.made.values())):
            with self.builder.dataflow():
                for line in self.lines.lines:
                    if line not in self.made:
                        self.made[line] = self.builder.emit(self.expression(line))
                # TVMScript has no empty tuple.
                values = [self.use(value) for value in self.outputs] or [relax.const(0)]
                outputs = relax.Tuple(values)
                result = self.builder.emit_output(outputs)
            self.builder.emit_func_output(result)
        return self.builder.finalize()

    def use(self, value: Value) -> Expression:
        """The expression of a value, where it is used."""
        if not isinstance(value, Item) or value in self.made:
            return self.made[value]
        field = self.builder.emit(relax.TupleGetItem(self.made[value.line], value.index))
        if self.lines.spelling.fields_once:
            self.made[value] = field
        return field

    def expression(self, line: Line) -> Expression:
        """The expression that a line binds."""
        by_functions = self.lines.spelling.by_functions
        if by_functions and line.consuming is not None and self.may_consume(line):
            return line.consuming(*map(self.use, line.operands))
        made = line.make(*map(self.use, line.operands))
        if by_functions and line.constant is not None:
            body = relax.SeqExpr([], made)
            function = relax.Function([], body, made.ty)
            return relax.Call(self.builder.add_func(function, "constant"), [])
        return self.as_reshape(made) if self.lines.spelling.known_views else made

    def may_consume(self, line: Line) -> bool:
        """Whether an operand of a line, and its aliases, have no other use."""
        operand = line.operands[line.consumed]
        used = [value for it in self.lines.lines for value in it.operands]
        once = (*used, *self.outputs).count(operand) == 1
        return once and isinstance(operand, Line) and operand.fresh

    def as_reshape(self, made: Expression) -> Expression:
        """A call that keeps the order of the elements of its operand, as a call of `reshape`."""
        if not isinstance(made, relax.Call) or not hasattr(made.op, "name"):
            return made
        name, made = made.op.name.removeprefix("relax."), self.builder.normalize(made)
        moves = name in MOVES and keeps_order(name, made, shape_of(made.ty))
        number = getattr(made.args[-1], "value", None)
        if name in NEUTRAL and number is not None and not number.shape:  # such as `x * 1`
            moves = number.numpy() == NEUTRAL[name] and made.args[0].ty.dtype == made.ty.dtype
        if not moves:
            return made
        of = made.args[0]
        if name in ("concat", "stack"):
            of = self.builder.emit(relax.TupleGetItem(of, 0))
        return R.reshape(of, tuple(shape_of(made.ty)))


def type_of(sizes: Sequence[int], dtype: torch.dtype) -> Any:
    """The type of a tensor. Raises `Rejected` for a dtype that Relax does not have."""
    require_dtype(dtype)
    return relax.TensorType(tuple(sizes), DTYPES[dtype])


def require_dtype(dtype: torch.dtype) -> None:
    """Raises `Rejected` for a dtype that Relax does not have."""
    if dtype not in DTYPES:
        raise Rejected(f"Relax has no tensors of {dtype}")


def constant(tensor: torch.Tensor) -> Expression:
    """A constant that shares the memory of a tensor, which must be contiguous."""
    return relax.const(tvm.runtime.from_dlpack(tensor))
