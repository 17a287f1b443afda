"""Facts about operators, read off their schemas (`OpOverload._schema`), never off their names alone."""

from __future__ import annotations

import difflib
import functools
import re
from dataclasses import dataclass
from enum import Enum

import torch
from torch._ops import OpOverload, OpOverloadPacket

from programs.errors import UserError

_NAME = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*\.[A-Za-z_]\w*")
_TOUCHES_FILES = {"aten.from_file.default", "aten.from_file.out"}


class Kind(Enum):
    """What a schema says an operator does with storage."""

    FUNCTIONAL = "functional"  # fresh outputs, no argument written
    VIEW = "view"  # outputs may alias an argument, no argument written
    IN_PLACE = "in-place"  # writes to its first argument
    OUT = "out="  # writes to arguments passed for that purpose alone
    MUTATING = "mutating"  # writes to other arguments than the first


@dataclass(frozen=True, slots=True)
class Facts:
    """What the schema of an operator says.

    `writes` are the indices (into `schema.arguments`) of the arguments written; `overwrites` those
    among them whose old contents are not read (`out=` arguments and the destination of a plain fill
    or copy); `pointwise` is true if element i of every output depends on element i of the broadcast
    operands only.
    """

    op: OpOverload
    kind: Kind
    writes: tuple[int, ...]
    overwrites: tuple[int, ...]
    pointwise: bool


_PLAIN_STORES = {
    "aten.copy_.default",
    "aten.fill_.Scalar",
    "aten.fill_.Tensor",
    "aten.zero_.default",
}
_RANDOM_STORES = {
    "uniform_",
    "normal_",
    "bernoulli_",
    "random_",
    "exponential_",
    "geometric_",
    "cauchy_",
    "log_normal_",
}


@functools.cache
def resolve(name: str) -> OpOverload:
    """The operator overload of that full name, such as `aten.add_.Tensor`.

    Raises `UserError` if it is not registered with the dispatcher, with the nearest names.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name}' is no operator name; write namespace.operator.overload, such as aten.add.Tensor"
        )
    if name in _TOUCHES_FILES:
        raise UserError(f"operator '{name}' touches files and may not stand in a program")
    namespace, operator, overload = name.split(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    op = getattr(packet, overload, None)
    if isinstance(op, OpOverload):
        return op
    if isinstance(packet, OpOverloadPacket):
        near = [f"{namespace}.{operator}.{each}" for each in packet.overloads()]
    else:
        near = difflib.get_close_matches(name, _registered(namespace), n=3)
    raise UserError(
        f"unknown operator '{name}'" + (f"; did you mean {', '.join(near)}?" if near else "")
    )


def _registered(namespace: str) -> list[str]:
    names = (
        each.split("::")[1]
        for each in torch._C._dispatch_get_all_op_names()
        if each.startswith(f"{namespace}::")
    )
    return [
        f"{namespace}.{each}" if "." in each else f"{namespace}.{each}.default" for each in names
    ]


@functools.cache
def is_composite(op: OpOverload) -> bool:
    """True if calling it calls other operators, which a trace sees in its place, and one trace others than another."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


@functools.cache
def facts(op: OpOverload) -> Facts:
    """The facts of an overload; see `Facts`."""
    arguments = op._schema.arguments
    writes = tuple(
        i
        for i, arg in enumerate(arguments)
        if arg.alias_info is not None and arg.alias_info.is_write
    )
    out = tuple(i for i in writes if arguments[i].is_out)
    name = str(op)
    if not writes:
        returns_alias = any(each.alias_info is not None for each in op._schema.returns)
        kind = Kind.VIEW if returns_alias else Kind.FUNCTIONAL
    elif writes == out:
        kind = Kind.OUT
    elif writes[0] == 0:
        kind = Kind.IN_PLACE
    else:
        kind = Kind.MUTATING
    return Facts(
        op=op,
        kind=kind,
        writes=writes,
        overwrites=out
        or ((0,) if name in _PLAIN_STORES or op.overloadpacket.__name__ in _RANDOM_STORES else ()),
        pointwise=torch.Tag.pointwise in op.tags or name in _PLAIN_STORES,
    )
