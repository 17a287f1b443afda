"""Which operators compute the same: the functional form of one that writes, and the view behind a copy or a scatter.

Read off schemas. (The reference pass has its own account of this; a judge must not share one with
the accused.)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch._ops import OpOverload, OpOverloadPacket

from programs.schemas import Kind, facts

aten = torch.ops.aten

SCATTERS: dict[OpOverload, OpOverload] = {
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.as_strided_scatter.default: aten.as_strided.default,
}


# By name, in place or not: the same bits, whichever operand comes first. (`maximum` of 0. and -0.
# is one or the other.)
COMMUTATIVE = {
    "add", "mul", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne",
}  # fmt: skip


@functools.cache
def functional_form(op: OpOverload) -> OpOverload | None:
    """The overload that returns what this one writes, after what it returns anew; None if there is none."""
    known = facts(op)
    if not known.writes or op.namespace != "aten":
        return None
    arguments = op._schema.arguments
    types = [
        str(each.type)
        for index, each in enumerate(arguments)
        if not each.is_out or index not in known.writes
    ]
    fresh = [each for each in op._schema.returns if each.alias_info is None]
    name = op.overloadpacket.__name__
    plain = (
        f"__{name[3:]}" if name.startswith("__i") else name.removesuffix("_")
    )  # `<<=` is `__ilshift__`
    for packet in filter(
        None, (_packet(each) for each in (plain, f"{plain}_functional", name, f"{name}_functional"))
    ):
        for overload in _overloads(packet):
            schema = overload._schema
            if facts(overload).writes or any(
                each.alias_info is not None for each in schema.returns
            ):
                continue
            if (
                len(schema.returns) == len(fresh) + len(known.writes)
                and [str(a.type) for a in schema.arguments] == types
            ):
                return overload
    return None


@functools.cache
def in_place_form(op: OpOverload) -> OpOverload | None:
    """The overload that writes the result of this one into its first operand; None if there is none."""
    return next((each for each in _twins(op) if facts(each).kind is Kind.IN_PLACE), None)


@functools.cache
def out_form(op: OpOverload) -> OpOverload | None:
    """The overload that writes the one result of this one into an `out=` argument; None if there is none."""
    return next(
        (
            each
            for each in _twins(op)
            if facts(each).kind is Kind.OUT and len(facts(each).writes) == 1
        ),
        None,
    )


def _twins(op: OpOverload) -> Iterator[OpOverload]:
    name = op.overloadpacket.__name__
    for packet in (
        filter(None, (_packet(f"{name}_"), _packet(name))) if op.namespace == "aten" else ()
    ):
        yield from (each for each in _overloads(packet) if functional_form(each) is op)


@functools.cache
def view_of_copy(op: OpOverload) -> OpOverload | None:
    """The view op that a view-copy op copies the result of: `aten.select.int` of `aten.select_copy.int`."""
    name = op.overloadpacket.__name__
    packet = (
        _packet(name.removesuffix("_copy"))
        if op.namespace == "aten" and name.endswith("_copy")
        else None
    )
    if packet is None or name == "_to_copy":
        return None
    types = [str(each.type) for each in op._schema.arguments]
    return next(
        (
            each
            for each in _overloads(packet)
            if [str(a.type) for a in each._schema.arguments] == types
        ),
        None,
    )


def _overloads(packet: OpOverloadPacket) -> list[OpOverload]:
    # `getattr`, not `packet.__getattr__`: that would make each overload anew, and the old ones
    # would no longer be equal
    return [getattr(packet, each) for each in packet.overloads()]


def _packet(name: str) -> OpOverloadPacket | None:
    found = getattr(aten, name, None)
    return found if isinstance(found, OpOverloadPacket) else None
