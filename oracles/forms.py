"""Operators that compute the same: functional and mutating forms, and views behind copies.

Both are derived from schemas. (The reference pass has its own version: the judge must not share
code with what it judges.)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch._ops import OpOverload, OpOverloadPacket

from aliasproof.ir.schemas import Kind, facts

aten = torch.ops.aten

# A scatter, and the view op of its base that it stores through.
SCATTERS: dict[OpOverload, OpOverload] = {
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.as_strided_scatter.default: aten.as_strided.default,
}


# Names of ops, in place or not, that give the same bits in either order of their operands. Not
# `maximum`: of 0. and -0. it returns the first or the second.
COMMUTATIVE = {
    "add",
    "mul",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "eq",
    "ne",
}


@functools.cache
def functional_form(op: OpOverload) -> OpOverload | None:
    """The overload that returns the new results of this op, then its written operands; or None."""
    if not facts(op).writes or op.namespace != "aten":
        return None
    name = op.overloadpacket.__name__
    # `<<=` is `__ilshift__`
    plain = f"__{name[3:]}" if name.startswith("__i") else name.removesuffix("_")
    candidates = (plain, f"{plain}_functional", name, f"{name}_functional")
    # `add` for `add_`, `normal_functional` for `normal_`; an `out=` form keeps its name.
    for packet in filter(None, map(_packet, candidates)):
        for overload in _overloads(packet):
            if _is_functional_form(overload, op):
                return overload
    return None


def _is_functional_form(form: OpOverload, op: OpOverload) -> bool:
    """Whether its arguments are those of `op` without `out=`, and its results are all new."""
    known, schema = facts(op), form._schema
    if facts(form).writes or any(result.alias_info is not None for result in schema.returns):
        return False
    types = [
        str(argument.type)
        for index, argument in enumerate(op._schema.arguments)
        if not argument.is_out or index not in known.writes
    ]
    # An op that writes may return new results as well, such as a running mean.
    new = sum(result.alias_info is None for result in op._schema.returns)
    if len(schema.returns) != new + len(known.writes):
        return False
    return [str(argument.type) for argument in schema.arguments] == types


@functools.cache
def in_place_form(op: OpOverload) -> OpOverload | None:
    """The overload that writes the result of this op into its first operand, if any."""
    return next((twin for twin in _twins(op) if facts(twin).kind is Kind.IN_PLACE), None)


@functools.cache
def out_form(op: OpOverload) -> OpOverload | None:
    """The overload that writes the one result of this op into an `out=` argument, if any."""
    out_forms = (twin for twin in _twins(op) if facts(twin).kind is Kind.OUT)
    return next((form for form in out_forms if len(facts(form).writes) == 1), None)


def _twins(op: OpOverload) -> Iterator[OpOverload]:
    """The overloads whose functional form is this op."""
    if op.namespace != "aten":
        return
    name = op.overloadpacket.__name__
    for packet in filter(None, (_packet(f"{name}_"), _packet(name))):
        yield from (form for form in _overloads(packet) if functional_form(form) is op)


@functools.cache
def view_of_copy(op: OpOverload) -> OpOverload | None:
    """The view op whose result a view copy copies: `aten.select.int` of `aten.select_copy.int`."""
    name = op.overloadpacket.__name__
    if op.namespace != "aten" or not name.endswith("_copy") or name == "_to_copy":
        return None
    packet = _packet(name.removesuffix("_copy"))
    if packet is None:
        return None
    types = [str(argument.type) for argument in op._schema.arguments]
    for overload in _overloads(packet):
        # Overloads of the two are matched by types: their names may differ.
        if [str(argument.type) for argument in overload._schema.arguments] == types:
            return overload
    return None


def _overloads(packet: OpOverloadPacket) -> list[OpOverload]:
    # `getattr`, not `packet.__getattr__`: that creates new overloads, unequal to the existing ones.
    return [getattr(packet, name) for name in packet.overloads()]


def _packet(name: str) -> OpOverloadPacket | None:
    packet = getattr(aten, name, None)
    return packet if isinstance(packet, OpOverloadPacket) else None
