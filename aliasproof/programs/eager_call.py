"""`EagerCall`: one ATen call in eager, before it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.programs.errors import Rejected
from aliasproof.programs.hidden_writes import BATCH_NORMS, batch_norm_with_true_schema
from aliasproof.programs.regions import Region, overlap
from aliasproof.programs.schemas import Facts, facts


@dataclass(slots=True)
class EagerCall:
    """One ATen call, before it runs: its operands by schema argument, and as flat lists of tensors.

    `overwritten` are the written tensors whose old contents the op does not read.
    """

    op: OpOverload
    facts: Facts
    arguments: dict[str, Any]
    written: list[torch.Tensor]
    overwritten: list[torch.Tensor]
    only_read: list[torch.Tensor]

    @classmethod
    def of(cls, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> EagerCall:
        """The call with these arguments. Raises `Rejected` if a tensor among them is not dense."""
        if op in BATCH_NORMS:
            op, args, kwargs = batch_norm_with_true_schema(op, args, kwargs)
        known = facts(op)
        call = cls(op, known, {}, [], [], [])
        for index, argument in enumerate(op._schema.arguments):
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            if op is torch.ops.aten.copy_.default and argument.name == "src":
                value = torch.as_tensor(value)  # `x.copy_(1.0)`
            call.arguments[argument.name] = value
            tensors = list(tensors_in(value))
            for tensor in tensors:
                if tensor.layout is not torch.strided:
                    only = "only dense (strided) ones can be judged"
                    raise Rejected(f"{op} takes a {tensor.layout} tensor; {only}")
            (call.written if index in known.writes else call.only_read).extend(tensors)
            if index in known.overwrites:
                call.overwritten.extend(tensors)
        return call

    def overwrites(self, tensor: torch.Tensor) -> bool:
        """True if the op writes this tensor object without reading its old contents."""
        # By identity: `in` would compare the elements.
        return any(tensor is other for other in self.overwritten)

    def read(self) -> list[torch.Tensor]:
        """The tensors whose contents the op reads, also those that it then writes."""
        return [
            *self.only_read,
            *(tensor for tensor in self.written if not self.overwrites(tensor)),
        ]


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """All tensors in a value, in order, at any nesting of lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from tensors_in(element)
    elif isinstance(value, dict):
        for element in value.values():
            yield from tensors_in(element)


def storage_shown_next(call: EagerCall) -> torch.UntypedStorage:
    """The storage that a tensor shows after `set_` or `resize_`, which may lengthen it."""
    source = call.arguments.get("source", call.written[0])
    shown: torch.UntypedStorage = (
        source.untyped_storage() if isinstance(source, torch.Tensor) else source
    )
    return shown


def refuses_overlap(error: Exception) -> bool:
    """Whether eager raises this since memory overlaps (`aten/src/ATen/MemoryOverlap.cpp`)."""
    text = r"the written-to tensor refers? to a single memory location"
    return re.search(text, str(error)) is not None


def operands_overlap(call: EagerCall) -> bool:
    """Whether a call writes memory that another of its operands has."""
    return any(
        target.untyped_storage()._cdata == operand.untyped_storage()._cdata
        and overlap(Region.of(target), Region.of(operand))
        for index, target in enumerate(call.written)
        for operand in (*call.only_read, *call.written[:index])
    )
