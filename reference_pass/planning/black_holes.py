"""Calls of which nobody knows what they keep: operators of other libraries, Python functions.

    first = cache(x)          # keeps x, and hands it out again later
    y = x + 1                 # must not be written over x
    again = cache(z)          # may be x

Such a call is a *black hole*: what it returns may alias anything that was ever passed to one. So
the memory of its operands, and of its results, is never overwritten, and never taken over. A user
who knows better states that an operator is `non_aliasing`: it keeps no operand and no result, and
its results are new. `call_checked` checks that while the graph runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any

from torch import fx
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import is_opaque, on_copies
from aliasproof.reference_pass.exceptions import Broken
from aliasproof.reference_pass.semantics import Semantics


def with_black_holes(semantics: Semantics, non_aliasing: Collection[object]) -> Semantics:
    """The semantics in which opaque calls keep what they are given, and what they return."""

    def held(node: fx.Node) -> Iterator[fx.Node]:
        yield from semantics.held(node)
        op = called(node)
        if is_opaque(op) and op not in non_aliasing:
            yield from node.all_input_nodes
            yield node

    return dataclasses.replace(semantics, held=held)


def called(node: fx.Node) -> object:
    """The operator that a node calls, maybe on copies."""
    return node.args[0] if node.target is on_copies else node.target


def check_calls(graph: fx.Graph, non_aliasing: Collection[object]) -> None:
    """Let each call of these operators check, when it runs, that it is as stated."""
    for node in graph.nodes:
        if node.target in non_aliasing:
            node.target, node.args = call_checked, (node.target, *node.args)


_HAD: set[StorageWeakRef] = set()  # what checked calls were given, or returned, as far as it lives


def call_checked(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
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
