"""Calls of operators that a user states to be `non_aliasing`, checked while the graph runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

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
    """Call an operator; raises `Broken` if it returns memory that such a call had before.

    What an operator keeps, and does not return, cannot be seen.
    """
    given = _storages((args, kwargs))
    returned = op(*args, **kwargs)
    made, had = _storages(returned), {storage for storage in _HAD if not storage.expired()}
    if made & (had | given):
        raise Broken(f"{op} is stated to be non_aliasing, but returns memory that it had before")
    _HAD.clear()
    _HAD.update(had, given, made)
    return returned


def _storages(value: Any) -> set[StorageWeakRef]:
    return {StorageWeakRef(tensor.untyped_storage()) for tensor in tensors_in(value)}
