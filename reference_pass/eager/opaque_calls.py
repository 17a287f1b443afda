"""Calls of operators of other libraries.

Only the schema of such an operator is known. So each operand must have the layout that it has in
eager, and if one operand is written, operands must share memory as in eager. Usually the values in
the new graph have these properties. Otherwise the call gets copies with these layouts
(`on_copies`). Then the memory around the operands is zero.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef

from aliasproof.reference_pass.alias_analysis import Effect
from aliasproof.reference_pass.calls.copied_operands import Layout, on_copies
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import facts, is_opaque
from aliasproof.reference_pass.calls.regions import is_data_dependent, known
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.exceptions import Broken
from aliasproof.reference_pass.functional_calls import WritingCall, write_results


def call_of_other_library(env: Environment, node: fx.Node, effect: Effect) -> bool:
    """Emit the call of such an operator on copies; False if it can be called as it is."""
    op = node.target
    if not isinstance(op, OpOverload) or not is_opaque(op):
        return False
    call = WritingCall.of(env, node)
    layouts = layouts_in_eager(env, op, call.given)
    if layouts is None and not facts(op).writes:
        return False
    strided = node if facts(op).random else None  # strides are among the layouts
    args, kwargs = env.arguments(node.args, strided), env.arguments(node.kwargs, strided)
    more = {} if layouts is None else {"layouts": layouts}
    write_results(env, call, effect, env.emit.call(on_copies, op, *args, **kwargs, **more))
    return True


def layouts_in_eager(
    env: Environment, op: OpOverload, given: dict[str, Any]
) -> list[Layout] | None:
    """The layouts of the operands in eager; None if the values in the new graph have them."""
    operands = [tensor for leaf in nodes_in(given) for tensor in tensors_in(env.shown(leaf))]
    values = [value.meta["val"] for value in nodes_in(env.arguments(given))]
    views = [env.views[id(tensor)] for tensor in operands]
    layouts = []
    for view in views:
        seen = view.shows
        nbytes = env.nbytes[seen.storage]
        layouts.append(
            (seen.storage, nbytes, seen.offset, tuple(seen.strides), seen.conj, seen.neg)
        )
    # A call that writes nothing cannot tell whether its operands share memory.
    shared = bool(facts(op).writes) and len({view.storage for view in views}) < len(views)
    alike = all(map(_has_layout, values, layouts))
    return None if alike and not shared else layouts


def _has_layout(value: torch.Tensor, layout: Layout) -> bool:
    _, nbytes, offset, strides, _, _ = layout
    pairs = [*zip(value.stride(), strides, strict=True), (value.storage_offset(), offset)]
    pairs.append((value.untyped_storage().nbytes(), nbytes))
    # A data-dependent size has another symbol here, and no graph can compute it before the call.
    return all(is_data_dependent(own) or known(own == wanted) for own, wanted in pairs)


# --- checked calls --------------------------------------------------------------------------------
#
# Calls of operators that a user states to be `non_aliasing`, checked while the graph runs.


def check_calls(graph: fx.Graph, non_aliasing: Collection[object]) -> None:
    """Let each call of these operators check, when it runs, that it is non-aliasing."""
    for node in graph.nodes:
        if node.target in non_aliasing:
            node.target, node.args = call_checked, (node.target, *node.args)


_HAD: set[StorageWeakRef] = set()  # storages of arguments and results of checked calls, while alive


def call_checked(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an operator.

    Raises `Broken` if the operator returns memory that such a call had before, or retains one of
    its arguments, or the memory of one, after the call.
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
