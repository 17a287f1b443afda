"""`MOVES`: ops that pass on the value hashes that they read, in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from aliasproof.oracles.hashed_memory import HashedMemory
from aliasproof.oracles.value_hashes import Array, conjugated, negative

MoveRule: TypeAlias = Callable[
    [HashedMemory, Sequence[Any], Mapping[str, Any], torch.Tensor], Array
]


def in_order(
    memory: HashedMemory, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> Array:
    """All elements in row-major order, in the sizes of the result."""
    moved = memory.read_as(args[0], result.dtype)
    if moved.shape[:-1] == tuple(result.shape):
        return moved
    return moved.reshape(*result.shape, result.element_size())


def _fill_rule(
    memory: HashedMemory, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> Array:
    """One value everywhere: a tensor or a Python number."""
    value = args[1] if len(args) > 1 else kwargs["value"]
    if isinstance(value, torch.Tensor):
        return memory.broadcast(value, result)
    return memory.constant(result)


def _negative(
    memory: HashedMemory, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> Array:
    return negative(memory.read(args[0]), result.dtype)


def _conjugate(
    memory: HashedMemory, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> Array:
    shown = memory.read(args[0])
    return conjugated(shown, result.dtype) if result.is_complex() else shown


MOVES: dict[str, MoveRule] = {
    "clone": in_order,
    "_to_copy": in_order,
    "_unsafe_view": in_order,
    "lift_fresh_copy": in_order,
    "_reshape_copy": in_order,
    "contiguous": in_order,
    "positive": in_order,
    "resolve_conj": in_order,
    "resolve_neg": in_order,
    "fill": _fill_rule,
    "neg": _negative,
    "conj_physical": _conjugate,
    "_conj_physical": _conjugate,
}
