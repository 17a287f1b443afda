"""`NodeCall`: what a call of a graph node reads and writes, by its schema.

A call of a Python function or a tensor method has no schema. Its writes are found by the version
counters of its operands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload

from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.schemas import Facts, facts
from aliasproof.oracles.location import Location


class Operand(NamedTuple):
    """A tensor among the arguments of a call, at its location before the call.

    `argument` is its name in the schema. `position` counts arguments except `out=` arguments, which
    have -1: so operands of a functional op and of its in-place form have equal positions. `written`
    and `overwritten` (written without being read) mean bytes: `t_` and `set_` write none.
    """

    position: int
    argument: str
    location: Location
    written: bool
    overwritten: bool


@dataclass(slots=True)
class NodeCall:
    """A call of a node.

    `op` is None for a call of anything but an operator; all its tensors count as read. `computes`
    is the operator that does the work: `op`, or the operator that a function takes as its first
    argument (as higher-order operators do). `arguments` are as passed, by name in the schema (by
    position for other functions). `mutates` follows the schema; for a call without one, it says
    whether the version counter of an operand (which its views share) changed. `conflicts` says that
    a `copy_` stored different values to one address.
    """

    op: OpOverload | None
    computes: OpOverload | None
    arguments: dict[str, Any]
    operands: tuple[Operand, ...]
    mutates: bool = False
    conflicts: bool = False

    @property
    def written(self) -> list[Operand]:
        """Operands with bytes that the call writes."""
        return [operand for operand in self.operands if operand.written]

    @property
    def read(self) -> list[Operand]:
        """Operands whose contents matter, not only their metadata or their memory."""
        unread = _unread(self.computes) if self.computes is not None else ()
        return [
            operand
            for operand in self.operands
            if not operand.overwritten and operand.argument not in unread
        ]

    @property
    def is_data_dependent(self) -> bool:
        """Whether it makes no tensor but reads tensor data, on which later nodes may depend."""
        return self.computes is not None and self.computes.overloadpacket in _DATA_READERS


Locate = Callable[[torch.Tensor], Location]


def operator_call(
    op: OpOverload | None,
    computes: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    locate: Locate,
) -> NodeCall:
    """A call of an operator, or (`op` is None) of a function that runs one."""
    schema = _schema_of(computes)
    # Positional arguments are in the order of the schema.
    passed = dict(zip(schema.names, args, strict=False)) | dict(kwargs)
    # In the order of the schema, also where keywords were passed in another order.
    arguments = {name: passed[name] for name in schema.names if name in passed} | passed
    operands: list[Operand] = []
    for name, value in arguments.items():
        # What a function does with the operator's arguments is unknown: it may work on copies.
        written = op is not None and name in schema.written
        # On copies it does not read what the operator overwrites, either.
        overwritten = (written or op is None) and name in schema.overwritten
        position = schema.positions.get(name, -1)
        operands += [
            Operand(position, name, locate(tensor), written, overwritten)
            for tensor in tensors_in(value)
        ]
    # Also metadata: `t_` mutates and writes no byte.
    mutates = op is not None and bool(schema.facts.writes)
    return NodeCall(op, computes, arguments, tuple(operands), mutates)


def function_call(args: Sequence[Any], kwargs: Mapping[str, Any], locate: Locate) -> NodeCall:
    """A call of a method, module or Python function: all operands count as read."""
    arguments = {str(index): value for index, value in enumerate(args)} | dict(kwargs)
    operands = tuple(
        Operand(index, name, locate(tensor), written=False, overwritten=False)
        for index, (name, value) in enumerate(arguments.items())
        for tensor in tensors_in(value)
    )
    return NodeCall(None, None, arguments, operands)


def version_counters(call: NodeCall | None) -> list[int]:
    """The version counter of each operand, if the call has no operator."""
    if call is None or call.op is not None:
        return []
    return [tensor._version for value in call.arguments.values() for tensor in tensors_in(value)]


def note_writes(call: NodeCall, before: Sequence[int]) -> None:
    """Mark the operands that a call without an operator wrote; `before` are their counters."""
    # A view shares the counter of its base, so a write through any view counts.
    changed = [one != other for one, other in zip(before, version_counters(call), strict=True)]
    call.mutates = any(changed)
    call.operands = tuple(
        operand._replace(written=wrote)
        for operand, wrote in zip(call.operands, changed, strict=True)
    )


# --- schemas --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Schema:
    """A schema by argument name. `written` and `overwritten` mean bytes; see `Operand`."""

    facts: Facts
    names: tuple[str, ...]
    positions: Mapping[str, int]
    written: frozenset[str]
    overwritten: frozenset[str]


@functools.cache
def _schema_of(op: OpOverload) -> _Schema:
    known, arguments = facts(op), op._schema.arguments
    names = tuple(argument.name for argument in arguments)
    # `out=` arguments do not count, so that positions agree between forms.
    counted = (argument.name for argument in arguments if not argument.is_out)
    # t_, set_ and resize_ change the metadata and leave the bytes.
    written = () if torch.Tag.inplace_view in op.tags else known.writes
    return _Schema(
        known,
        names,
        {name: index for index, name in enumerate(counted)},
        frozenset(names[index] for index in written),
        frozenset(names[index] for index in known.overwrites),
    )


# All other ops that make no tensor read only metadata.
_DATA_READERS = {
    torch.ops.aten.item,
    torch.ops.aten._local_scalar_dense,
    torch.ops.aten.is_nonzero,
    torch.ops.aten.equal,
    torch.ops.aten.allclose,
    torch.ops.aten._assert_async,
}


@functools.cache
def _unread(op: OpOverload) -> tuple[str, ...]:
    """The arguments that the op does not write and whose contents it does not use.

    Examples are the first arguments of `zeros_like` and of the functional `fill`.
    """
    if op.namespace != "aten":  # the name of another library's op says nothing
        return ()
    name = op.overloadpacket.__name__
    names = tuple(argument.name for argument in op._schema.arguments)
    if torch.Tag.inplace_view in op.tags:
        return names
    if name.endswith("_like") or name.startswith("new_") or _overwrites_its_first(op):
        return names[:1]
    # Of these, only the sizes of the second tensor are used.
    return names[1:] if name in ("view_as", "expand_as", "reshape_as") else ()


def _overwrites_its_first(op: OpOverload) -> bool:
    """Whether it is the functional form of an op that overwrites its first argument unread."""
    name = op.overloadpacket.__name__
    # `fill` -> `fill_`, `normal_functional` -> `normal_`.
    for candidate in dict.fromkeys((name + "_", name.removesuffix("_functional") + "_")):
        packet = getattr(torch.ops.aten, candidate, None)
        for overload in packet.overloads() if packet is not None else ():
            form = getattr(packet, overload)
            if facts(form).overwrites and not facts(form).writes[1:] and _types(form) == _types(op):
                return True
    return False


def _types(op: OpOverload) -> list[str]:
    return [str(argument.type) for argument in op._schema.arguments if not argument.is_out]
