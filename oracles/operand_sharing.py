"""Which bytes the operands of an opaque call share, where one of them is written.

What such a call leaves may depend on that: it may read one operand after it wrote another. So the
sharing is a part of its value hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch._ops import OpOverload

from aliasproof.ir.custom_operators import NAMESPACE, READS_AGAIN
from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.regions import Region, overlap
from aliasproof.ir.schemas import facts
from aliasproof.ir.storages import entries_of
from aliasproof.oracles.calls import TORCH
from aliasproof.oracles.value_hashes import digest


def shared_with_written(op: OpOverload, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Which byte of an operand is which byte of another one, as a plain argument of the call.

    It is empty if no operand shares a byte with another one that is written, and the same for
    operands at other addresses. torch's operators have rules of their own. Ours read all operands
    before they write, except a few; so with one written argument, sharing changes nothing.
    """
    if op.namespace in TORCH or not facts(op).writes:
        return []
    if op.namespace == NAMESPACE and _reads_first(op):
        return []
    names = {op._schema.arguments[index].name for index in facts(op).writes}
    operands = [
        (name in names, tensor) for name, value in given.items() for tensor in tensors_in(value)
    ]
    sharing = [
        index
        for index, (is_written, tensor) in enumerate(operands)
        if any(
            (is_written or other_is_written) and _share(tensor, other)
            for place, (other_is_written, other) in enumerate(operands)
            if place != index
        )
    ]
    if not sharing:
        return []
    bytes_shared = _hash_of_bytes([operands[index][1] for index in sharing])
    return [("shares", (sharing, bytes_shared))]


def _reads_first(op: OpOverload) -> bool:
    written = [op._schema.arguments[index] for index in facts(op).writes]
    in_lists = any("List" in str(argument.type) for argument in written)
    return len(written) == 1 and not in_lists and str(op) not in READS_AGAIN


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    storages = {one.untyped_storage()._cdata, other.untyped_storage()._cdata}
    return len(storages) == 1 and overlap(Region.of(one), Region.of(other))


def _hash_of_bytes(tensors: list[torch.Tensor]) -> int:
    """A hash of the bytes of the tensors, numbered in the order in which they appear first."""
    addresses: list[npt.NDArray[np.int64]] = []
    starts: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        # Storages get consecutive ranges of addresses.
        start = starts.setdefault(storage._cdata, sum(part.size for part in addresses) << 40)
        every = np.arange(start, start + storage.nbytes(), dtype=np.int64)
        offset = int(tensor.storage_offset())
        shown = entries_of(every, tensor.shape, tensor.stride(), offset, tensor.element_size())
        addresses.append(shown.ravel())
    _, first, inverse = np.unique(np.concatenate(addresses), return_index=True, return_inverse=True)
    in_order = np.argsort(np.argsort(first))
    return digest(in_order[inverse].astype(np.uint64))
