"""Calls on lists whose items overlap, or differ in having a gradient.

A `_foreach_` op runs one item of its lists after the other on a CPU
(aten/src/ATen/native/ForeachOpsKernels.cpp). If items overlap, the results depend on the order. So
the functional form is called once per item, in that order. In place, autograd records each item
separately, but all results of the functional form have a gradient if one operand has one. So it is
also called once per item if only some items have gradients.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import fx

from aliasproof.reference_pass.alias_analysis import Effect
from aliasproof.reference_pass.calls.nested import nodes_in
from aliasproof.reference_pass.calls.operator_forms import aten, writes
from aliasproof.reference_pass.calls.storages import written_tensors
from aliasproof.reference_pass.eager.history import HAS_GRADIENT
from aliasproof.reference_pass.eager.rounding import compute_exactly
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.functional_calls import (
    WritingCall,
    compute_call,
    has_lazy_bits,
    may_overlap,
)


def call_of_overlapping_items(env: Environment, node: fx.Node, effect: Effect) -> bool:
    """Emit a call on lists whose items overlap, or `_foreach_copy_`; False for any other call."""
    op = node.target
    if not writes(op) or not op.overloadpacket.__name__.startswith("_foreach_"):
        return False
    call = WritingCall.of(env, node)
    on_cpu = all(tensor.device.type == "cpu" for tensor in written_tensors(node, env.shown))
    overlap = on_cpu and _items_overlap(env, call)
    # Some items have an operand with a gradient, and others do not.
    gradients = {
        any(
            operand.meta.get(HAS_GRADIENT, False)
            for operand in nodes_in(_of_item(call.given, item))
        )
        for item in range(len(call.views))
    }
    if op is aten._foreach_copy_.default or overlap or len(gradients) > 1:
        _call_item_by_item(env, call)
        return True
    return False


def _items_overlap(env: Environment, call: WritingCall) -> bool:
    """True if a call writes bytes that it also reads or writes for another item."""
    lists = [
        [view for item in nodes_in(value) for view in env.views_of(item)]
        for value in call.given.values()
        if isinstance(value, (list, tuple))
    ]
    return any(
        may_overlap(target, operand)
        for index, target in enumerate(call.views)
        for views in lists
        for other, operand in enumerate(views)
        if index != other
    )


def _of_item(given: dict[str, Any], index: int) -> dict[str, Any]:
    """The arguments of a call for one item of its lists, as lists of one item."""
    return {
        name: [value[index]] if isinstance(value, (list, tuple)) else value
        for name, value in given.items()
    }


def _call_item_by_item(env: Environment, call: WritingCall) -> None:
    """Emit each item as a call on lists of one item, whose result is written before the next one.

    Eager resolves lazy bits before the call, so operands with lazy bits are read before the first
    item. Eager refuses to write to a list in which a tensor has lazy bits.
    """
    given = call.given
    lists = [name for name, value in given.items() if isinstance(value, (list, tuple))]
    items = dict.fromkeys(item for name in lists for item in nodes_in(given[name]))
    resolved = {
        item: env.emit.call(aten.clone.default, env.arguments(item))
        for item in items
        if any(map(has_lazy_bits, env.views_of(item)))
    }
    resolving = replace(env, plain=env.plain | resolved)
    for index, view in enumerate(call.views):
        if call.op is aten._foreach_copy_.default:
            # The functional form copies whole storages. The passes know that only for `copy`.
            item = {"self": given["self"][index], "src": given["src"][index]}
            one = WritingCall(call.node, aten.copy_.default, item, [view])
            new = compute_call(resolving, one)
        else:
            one = replace(call, given=_of_item(given, index), views=[view])
            (new,) = env.emit.contents(env.emit.results(compute_exactly(resolving, one)))
        view.storage.write(view, new)
