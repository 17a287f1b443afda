"""The `_foreach_` ops: one call for many tensors.

On a CPU they run one tensor after the other (`aten/src/ATen/native/ForeachOpsKernels.cpp`), so a
list whose tensors overlap has one meaning there. Kernels of other devices run them at once.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch._ops import OpOverload

from aliasproof.programs.eager_call import EagerCall, tensors_in
from aliasproof.programs.regions import Region, overlap


def is_foreach(op: OpOverload) -> bool:
    """True if it applies one pointwise op to each tensor of its lists."""
    return op.namespace == "aten" and op.overloadpacket.__name__.startswith("_foreach_")


def one_by_one(call: EagerCall) -> list[EagerCall]:
    """The calls that a `_foreach_` op makes one after the other; any other call as it is."""
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
    # Most lists have a storage per tensor, so few pairs are left to be compared.
    by_storage: defaultdict[int, list[tuple[int, bool, Region]]] = defaultdict(list)
    for index, step in enumerate(steps) if len(steps) > 1 else ():
        for tensor in _distinct(tensors_in(list(step.arguments.values()))):
            written = any(tensor is target for target in step.written)
            storage = tensor.untyped_storage()._cdata
            by_storage[storage].append((index, written, Region.of(tensor)))
    return any(
        one_writes and index != other and overlap(region, other_region)
        for uses in by_storage.values()
        for (index, one_writes, region), (other, _, other_region) in itertools.permutations(uses, 2)
    )


def _distinct(tensors: Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
    return {id(tensor): tensor for tensor in tensors}.values()
