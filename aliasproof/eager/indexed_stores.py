"""Stores by index: which elements a call replaces, and whether it stores two values in one.

Which of the two values stays depends on the kernel, so such a call is undefined in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload

from aliasproof.eager.rounding import readable
from aliasproof.ir.regions import Region, overlaps_itself

aten = torch.ops.aten
# The positions of the destination that a call stores at, and a value, or a row of values, for each;
# None if no order of the stores changes the result.
Stored: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"


def stores_twice(packet: object, arguments: dict[str, Any]) -> bool:
    """True if a call of the op with these arguments stores two values at one position."""
    rule = INDEXED_STORES.get(packet)
    stored = None if rule is None else rule(arguments)
    if stored is None:
        return False
    positions, values = stored
    different, numbers = positions.flatten().unique(return_inverse=True)
    if different.numel() == positions.numel():
        return False
    # One row of values per position: the row that is stored there last, in some order.
    rows = readable(values).reshape(positions.numel(), -1)
    last = rows.new_empty(different.numel(), rows.shape[1])
    last[numbers] = rows
    return not same_values(last[numbers], rows)


def _index_put(arguments: dict[str, Any]) -> Stored | None:
    if arguments.get("accumulate"):
        return None  # a sum has the same value in any order, up to rounding
    indices = [index for index in arguments["indices"] if index is not None]
    # A mask names each element once. A mask without dimensions is not accepted by `index`.
    if len(indices) == 1 and indices[0].dtype in (torch.bool, torch.uint8):
        return None
    chosen: torch.Tensor = aten.index.Tensor(
        _element_numbers(arguments["self"]), arguments["indices"]
    )
    return chosen, arguments["values"].expand(chosen.shape)


def _scatter(arguments: dict[str, Any]) -> Stored | None:
    index, dim = arguments["index"], arguments["dim"]
    # The overload without `src` stores one value everywhere. A sum or product has the same value in
    # any order, up to rounding.
    if arguments.get("src") is None or arguments.get("reduce") is not None:
        return None
    if index.numel() == 0 or index.dim() == 0:
        return None
    numbers = _element_numbers(arguments["self"])
    # `gather` needs an operand that is as long as the index in every other dimension.
    for other in range(index.dim()):
        if other != dim % index.dim():
            numbers = numbers.narrow(other, 0, index.shape[other])
    source = arguments["src"][tuple(slice(size) for size in index.shape)]
    return numbers.gather(dim, index), source


def _index_copy(arguments: dict[str, Any]) -> Stored | None:
    index, source = arguments["index"], arguments["source"]
    return index, source.movedim(arguments["dim"], 0) if source.dim() else source


def _put(arguments: dict[str, Any]) -> Stored | None:
    if arguments.get("accumulate"):
        return None
    positions: torch.Tensor = arguments["index"] % max(arguments["self"].numel(), 1)
    return positions, arguments["source"]


def _element_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """The index of each element in row-major order, in the shape of the tensor."""
    return torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)


# `op_properties.py` has the reasons of ops with an index tensor that need no rule.
INDEXED_STORES: dict[object, Callable[[dict[str, Any]], Stored | None]] = {
    aten.index_put: _index_put,
    aten.index_put_: _index_put,
    aten._index_put_impl_: _index_put,
    aten._unsafe_index_put: _index_put,
    aten.scatter: _scatter,
    aten.scatter_: _scatter,
    aten.index_copy: _index_copy,
    aten.index_copy_: _index_copy,
    aten.put: _put,
    aten.put_: _put,
}


# Stores True at each element of a mask of the destination's shape that a call replaces.
StoredElements: TypeAlias = Callable[[torch.Tensor, dict[str, Any]], object]


def replaces_elements(packet: object, arguments: dict[str, Any]) -> bool:
    """True for an in-place store by index that does not read its destination."""
    # A sum or a product reads the old contents.
    sums = arguments.get("accumulate") or arguments.get("reduce") is not None
    return packet in _STORES_IN_PLACE and not sums


def replaced_elements(packet: object, arguments: dict[str, Any]) -> torch.Tensor | None:
    """A mask of the elements that an in-place call replaces; it does not change the others.

    None for a call that reads its destination, and for a call that is not a store by index.
    """
    if not replaces_elements(packet, arguments):
        return None
    mask = torch.zeros_like(arguments["self"], dtype=torch.bool)
    _STORES_IN_PLACE[packet](mask, arguments)
    return mask


def _put_true(mask: torch.Tensor, arguments: dict[str, Any]) -> None:
    mask.put_(arguments["index"], torch.ones_like(arguments["index"], dtype=torch.bool))


def _index_put_true(mask: torch.Tensor, arguments: dict[str, Any]) -> None:
    aten.index_put_.default(
        mask, arguments["indices"], torch.ones((), dtype=torch.bool, device=mask.device)
    )


_STORES_IN_PLACE: dict[object, StoredElements] = {
    aten.index_put_: _index_put_true,
    aten._index_put_impl_: _index_put_true,
    aten.scatter_: lambda mask, given: mask.scatter_(given["dim"], given["index"], True),
    aten.index_copy_: lambda mask, given: mask.index_fill_(given["dim"], given["index"], True),
    aten.index_fill_: lambda mask, given: mask.index_fill_(given["dim"], given["index"], True),
    aten.masked_fill_: lambda mask, given: mask.masked_fill_(given["mask"], True),
    aten.put_: _put_true,
}


# --- stored values --------------------------------------------------------------------------------


def value_stored(op: OpOverload, arguments: Mapping[str, Any]) -> torch.Tensor | None:
    """The contents that a copy into a region that overlaps itself must leave, if it is defined.

    None for other calls.
    """
    if op is not torch.ops.aten.copy_.default or not overlaps_itself(Region.of(arguments["self"])):
        return None
    target, source = arguments["self"], arguments["src"]
    expected: torch.Tensor = source.to(target.dtype).expand(target.shape).clone()
    return expected


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if element by element both tensors are equal, or both are NaN. -0.0 is not 0.0."""
    one, other = readable(one), readable(other)
    if one.is_complex():
        one, other = (torch.view_as_real(tensor.resolve_conj()) for tensor in (one, other))
    equal = one == other
    if one.is_floating_point():
        equal &= one.signbit() == other.signbit()
    return bool((equal | ((one != one) & (other != other))).all())
