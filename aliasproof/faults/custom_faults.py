"""Faults of calls of custom operators: what they write, what they share, how they are laid out."""

from __future__ import annotations

import operator
from typing import Any

from torch import fx
from torch._ops import OpOverload

from aliasproof.faults.fault import Fault, after_functionalize, after_noops, instead_of
from aliasproof.reference_pass.calls.copied_operands import Layout
from aliasproof.reference_pass.calls.nested import nodes_in
from aliasproof.reference_pass.calls.operator_forms import bind, facts, is_opaque, on_copies
from aliasproof.reference_pass.eager.opaque_calls import layouts_in_eager
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.regions import contiguous_strides


def second_write_of_an_operator_is_lost(graph_module: fx.GraphModule) -> None:
    """What a custom operator writes to its second mutable argument is not written back."""
    for node in graph_module.graph.nodes:
        if node.target is not on_copies:
            continue
        op = node.args[0]
        if not is_opaque(op) or len(facts(op).writes) < 2:
            continue
        old = bind(op, node.args[1:], node.kwargs).get(facts(op).writes[1])
        second = len(facts(op).fresh) + 1
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == second and old is not None:
                user.replace_all_uses_with(old)


def operator_writes_without_a_copy(graph_module: fx.GraphModule) -> None:
    """A custom operator runs on its arguments themselves, though the old values are read later."""
    for node in graph_module.graph.nodes:
        if node.target is on_copies and is_opaque(node.args[0]) and "layouts" not in node.kwargs:
            node.target = _on_originals


def _on_originals(op: OpOverload, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    given, returned = bind(op, args, kwargs), op(*args, **kwargs)
    returns = returned if len(op._schema.returns) > 1 else (returned,)
    fresh, written = facts(op).fresh, facts(op).writes
    return (*(returns[index] for index in fresh), *(given.get(name) for name in written))


def operands_do_not_share_memory(
    env: Environment, op: OpOverload, given: dict[str, Any]
) -> list[Layout] | None:
    """Arguments of a custom operator that overlap are copied one by one, so they do no longer."""
    layouts = layouts_in_eager(env, op, given)
    if layouts is None:
        return None
    return [(number, *layout[1:]) for number, layout in enumerate(layouts)]


def operator_gets_another_layout(
    env: Environment, op: OpOverload, given: dict[str, Any]
) -> list[Layout] | None:
    """A custom operator gets a dense copy of an operand that has gaps, or an offset, in eager."""
    layouts = layouts_in_eager(env, op, given)
    if layouts is None or len({layout[0] for layout in layouts}) < len(layouts):
        return layouts
    values = [value.meta["val"] for value in nodes_in(env.arguments(given))]
    return [
        (number, value.numel() * value.itemsize, 0, tuple(contiguous_strides(value.shape)), *bits)
        for value, (number, _, _, _, *bits) in zip(values, layouts, strict=True)
    ]


def operators_see_no_layout(user: fx.Node) -> bool:
    """A copy before a custom operator is dropped, though its original is elsewhere in memory."""
    return False


_LAID_OUT = "step of functionalize: operands of an operator of another library are as in eager"

FAULTS: tuple[Fault, ...] = (
    after_functionalize(
        second_write_of_an_operator_is_lost,
        "step of functionalize: the new contents of each written argument are written",
    ),
    after_noops(operator_writes_without_a_copy, "pytorch/pytorch#198031"),
    instead_of("layouts_in_eager", operands_do_not_share_memory, _LAID_OUT, "eager.opaque_calls"),
    instead_of("layouts_in_eager", operator_gets_another_layout, _LAID_OUT, "eager.opaque_calls"),
    instead_of(
        "shows_layout",
        operators_see_no_layout,
        "rule of remove_noops: no use depends on the location of a copy",
        "eager.layout_uses",
        "eager.layout_conditions",
    ),
)
