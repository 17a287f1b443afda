"""The operators of `torch._prims`, as the ATen operators that they call in eager.

A prim has no in-place form, no tag says that it is pointwise, and the fakes of some have other
strides, or another dtype, than in eager (`prims.real`). Its ATen operator has all of that right.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

aten = torch.ops.aten


def called_in_eager(node: fx.Node) -> Any:
    """The target of a node, with `aten_of_prim` for a prim that gets its arguments by position."""
    is_by_position = isinstance(node.target, OpOverload) and not node.kwargs
    return aten_of_prim(node.target) if is_by_position else node.target


@functools.cache
def aten_of_prim(op: OpOverload) -> OpOverload:
    """The ATen operator that a prim calls in eager, with the same arguments; else the operator."""
    if op.namespace != "prims":
        return op
    name = op.overloadpacket.__name__
    if name == "as_strided":  # its schema says that it writes
        return aten.as_strided.default
    in_eager = getattr(op, "impl_aten", None) if getattr(torch._prims, name, None) is op else None
    if not inspect.isbuiltin(in_eager):
        return op  # a Python function may do more than one call
    packet = getattr(aten, in_eager.__name__, None)
    if not isinstance(packet, OpOverloadPacket):
        return op
    for overload_name in packet.overloads():
        overload: OpOverload = getattr(packet, overload_name)
        if _takes_arguments_of(overload, op):
            return overload
    return op


def _takes_arguments_of(op: OpOverload, prim: OpOverload) -> bool:
    """True for an operator that takes the arguments of a prim by position, and writes none."""
    given, taken = prim._schema.arguments, op._schema.arguments
    return (
        not any(argument.is_write for argument in taken)
        and [str(argument.type) for argument in given]
        == [str(argument.type) for argument in taken[: len(given)]]
        and not any(argument.kwarg_only for argument in given)
        and all(argument.has_default_value() for argument in taken[len(given) :])
    )
