"""`EagerCall`: one ATen call in eager, before it runs."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.ir.errors import Rejected
from aliasproof.ir.regions import Region, overlap
from aliasproof.ir.schemas import Facts, facts

# --- hidden writes --------------------------------------------------------------------------------
#
# Operators whose schemas hide that they write, replaced by operators with true schemas.


aten = torch.ops.aten

BATCH_NORMS = {
    aten.native_batch_norm.default: (
        aten._native_batch_norm_legit_no_training.default,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit.default,
    ),
    aten.native_batch_norm.out: (
        aten._native_batch_norm_legit_no_training.out,
        aten._native_batch_norm_legit.no_stats_out,
        aten._native_batch_norm_legit.out,
    ),
}


def batch_norm_with_true_schema(
    op: OpOverload, args: Sequence[Any], outs: Mapping[str, Any]
) -> tuple[OpOverload, Sequence[Any], dict[str, Any]]:
    """`native_batch_norm` as an op with a true schema, and its arguments.

    The schema of `native_batch_norm` does not say that it updates the running statistics.
    """
    mean, training = args[3], args[5]
    not_training, no_statistics, legit = BATCH_NORMS[op]
    if not training:
        true_op, args = not_training, [*args[:5], *args[6:]]
    elif mean is None:
        true_op, args = no_statistics, [*args[:3], *args[5:]]
    else:
        true_op = legit
    # `out=` arguments have other names in the other schema, but the same order.
    new_names, names = (
        [argument.name for argument in form._schema.arguments if argument.kwarg_only]
        for form in (true_op, op)
    )
    renamed = {new: outs[name] for new, name in zip(new_names, names, strict=True)}
    return true_op, args, renamed


# --- eager call -----------------------------------------------------------------------------------


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


def refuses_overlap(error: Exception) -> bool:
    """True for the error that eager raises for overlap (`aten/src/ATen/MemoryOverlap.cpp`)."""
    text = r"the written-to tensor refers? to a single memory location"
    return re.search(text, str(error)) is not None


def operands_overlap(call: EagerCall) -> bool:
    """True if a call writes memory that another of its operands covers, too."""
    return any(
        target.untyped_storage()._cdata == operand.untyped_storage()._cdata
        and overlap(Region.of(target), Region.of(operand))
        for index, target in enumerate(call.written)
        for operand in (*call.only_read, *call.written[:index])
    )


# --- foreach calls --------------------------------------------------------------------------------
#
# The `_foreach_` ops: one call for many tensors. On a CPU they run one tensor after the other
# (`aten/src/ATen/native/ForeachOpsKernels.cpp`), so a list whose tensors overlap is defined there.
# Kernels of other devices run them at once.


def is_foreach(op: OpOverload) -> bool:
    """True for an op that applies one pointwise op to each tensor of its lists."""
    return op.namespace == "aten" and op.overloadpacket.__name__.startswith("_foreach_")


def one_by_one(call: EagerCall) -> list[EagerCall]:
    """The calls that a `_foreach_` op makes one after the other; any other call unchanged."""
    if not is_foreach(call.op) or not call.written or call.written[0].device.type != "cpu":
        return [call]
    count = len(call.written)
    lists = {
        name: value
        for name, value in call.arguments.items()
        if isinstance(value, (list, tuple)) and len(value) == count
    }
    return [
        replace(
            call,
            arguments=call.arguments | {name: value[index] for name, value in lists.items()},
            written=[target],
            overwritten=[target] if call.overwrites(target) else [],
        )
        for index, target in enumerate(call.written)
    ]


def depends_on_their_order(steps: Sequence[EagerCall]) -> bool:
    """True if one step writes bytes that another one reads or writes."""
    # Most lists have a storage per tensor, so few pairs remain to be compared.
    by_storage: defaultdict[int, list[tuple[int, bool, Region]]] = defaultdict(list)
    for index, step in enumerate(steps) if len(steps) > 1 else ():
        for tensor in {id(it): it for it in tensors_in(list(step.arguments.values()))}.values():
            written = any(tensor is target for target in step.written)
            storage = tensor.untyped_storage()._cdata
            by_storage[storage].append((index, written, Region.of(tensor)))
    return any(
        one_writes and index != other and overlap(region, other_region)
        for uses in by_storage.values()
        for (index, one_writes, region), (other, _, other_region) in itertools.permutations(uses, 2)
    )
