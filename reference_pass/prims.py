"""The pointwise operators of `torch._prims`, as the ATen operators that they call in eager."""

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
    """The pointwise ATen operator whose kernel a prim calls with its arguments; else the operator.

    A prim has no in-place form, and no tag says that it is pointwise; its ATen operator has both.
    """
    if op.namespace != "prims":
        return op
    prim: object = getattr(torch._prims, op.overloadpacket.__name__, None)
    in_eager = getattr(op, "impl_aten", None) if prim is op else None
    if not inspect.isbuiltin(in_eager):
        return op  # a Python function may do more than one call
    packet = getattr(aten, in_eager.__name__, None)
    if not isinstance(packet, OpOverloadPacket):
        return op
    for name in packet.overloads():
        overload: OpOverload = getattr(packet, name)
        if _takes_arguments_of(overload, op):
            return overload
    return op


def _takes_arguments_of(op: OpOverload, prim: OpOverload) -> bool:
    """True for a pointwise functional operator that takes the arguments of a prim by position."""
    given, taken = prim._schema.arguments, op._schema.arguments
    return (
        torch.Tag.pointwise in op.tags
        and not any(argument.alias_info for argument in taken)
        and [str(argument.type) for argument in given]
        == [str(argument.type) for argument in taken[: len(given)]]
        and not any(argument.kwarg_only for argument in given)
        and all(argument.has_default_value() for argument in taken[len(given) :])
    )
