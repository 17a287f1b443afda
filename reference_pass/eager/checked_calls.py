"""Calls of operators that a user states to be `non_aliasing`, checked while the graph runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.exceptions import Broken


def check_calls(graph: fx.Graph, non_aliasing: Collection[object]) -> None:
    """Let each call of these operators check, when it runs, that it is as stated."""
    for node in graph.nodes:
        if node.target in non_aliasing:
            node.target, node.args = call_checked, (node.target, *node.args)


_HAD: set[StorageWeakRef] = set()  # what checked calls were given, or returned, as far as it lives


def call_checked(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an operator.

    Raises `Broken` if it returns memory that such a call had before, or holds a tensor that it was
    given, or its memory, after the call.
    """
    operands = list(tensors_in((args, kwargs)))
    given, held = _storages(operands), _holders(operands)
    returned = op(*args, **kwargs)
    made, had = _storages(returned), {storage for storage in _HAD if not storage.expired()}
    if made & (had | given):
        raise Broken(f"{op} is stated to be non_aliasing, but returns memory that it had before")
    if _holders(operands) > held:
        raise Broken(f"{op} is stated to be non_aliasing, but keeps what it was given")
    _HAD.clear()
    _HAD.update(had, given, made)
    return returned


def _holders(tensors: list[torch.Tensor]) -> int:
    """How many references there are to these tensors, and to their storages."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum(map(sys.getrefcount, tensors)) + sum(
        torch._C._storage_Use_Count(storage._cdata) for storage in storages
    )


def _storages(value: Any) -> set[StorageWeakRef]:
    return {StorageWeakRef(tensor.untyped_storage()) for tensor in tensors_in(value)}
