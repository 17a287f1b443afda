"""Operators of Relax that move elements, as ATen calls, and those that the VM makes a view of.

`RewriteDataflowReshape` proves of each kernel whether it copies the elements of its operand in
their order, whatever operator it was, and then its result shares the memory of the operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import tvm
from tvm import relax

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


# An operator with this number is removed from its kernel, which copies what is left.
NEUTRAL = {"multiply": 1, "divide": 1, "add": 0, "subtract": 0}


def copies_operand(name: str, call: Any) -> bool:
    """Whether the call has a number that changes nothing, such as `x * 1`."""
    number = getattr(call.args[-1], "value", None)
    if name not in NEUTRAL or number is None or len(number.shape) > 0:
        return False
    return bool(number.numpy() == NEUTRAL[name]) and call.args[0].ty.dtype == call.ty.dtype


def keeps_order(name: str, call: Any, sizes: list[int]) -> bool:
    """Whether the elements of the only operand are all there, in their order: a view in the VM."""
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
