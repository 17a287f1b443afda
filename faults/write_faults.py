"""Faults of writes: which numbers are stored, and in which order."""

from __future__ import annotations

from dataclasses import replace

from torch import fx
from torch._ops import OpOverload

from faults.fault import Fault, after_functionalize, by_rules, instead_of
from reference_pass import operator_forms
from reference_pass.functionalize import RULES
from reference_pass.operator_forms import SCATTERS, aten


def a_store_forgets_the_one_before(graph_module: fx.GraphModule) -> None:
    """Of two scatters, one into the result of the other, the first is taken for a dead store, whatever the second covers."""
    for node in list(graph_module.graph.nodes):
        base = node.args[0] if node.target in SCATTERS else None
        if isinstance(base, fx.Node) and base.target is node.target and len(base.users) == 1:
            node.update_arg(0, base.args[0])


def two_stores_are_exchanged(graph_module: fx.GraphModule) -> None:
    """Of two scatters, one into the result of the other, the second is done first, as if the two could not overlap."""
    for node in list(graph_module.graph.nodes):
        base = node.args[0] if node.target in SCATTERS else None
        if (
            not isinstance(base, fx.Node)
            or base.target not in SCATTERS
            or set(base.users) != {node}
            or node.args[1] is base
        ):
            continue
        node.update_arg(0, base.args[0])
        users = [each for each in node.users if each is not base]
        node.append(base)
        for each in users:
            each.replace_input_with(node, base)
        base.update_arg(0, node)
        return


def reads_do_not_wait_for_writes(queued: int, value: fx.Node | None) -> bool:
    """A view is read without what was written through other views of its storage just before."""
    return value is None


def masks_store_over_all(op: OpOverload) -> bool:
    """A store through a mask or by index counts as one that stores over everything, so what was there is not looked at."""
    return op in _PARTIAL or _overwrites(op)


def casts_are_left_out(graph_module: fx.GraphModule) -> None:
    """The result of an op is stored in its own dtype, not in that of the tensor it was written to."""
    for node in list(graph_module.graph.nodes):
        if node.target is aten._to_copy.default:
            node.replace_all_uses_with(node.args[0])


_overwrites = operator_forms.overwrites
_PARTIAL = {
    aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.index_fill.int_Scalar, aten.index_copy.default,
    aten.index_put.default, aten.scatter.src, aten.scatter.value,
}  # fmt: skip

FAULTS: tuple[Fault, ...] = (
    after_functionalize(
        a_store_forgets_the_one_before,
        "rule of functionalize: what is queued is applied, all of it",
    ),
    after_functionalize(
        two_stores_are_exchanged, "rule of functionalize: what is queued is applied oldest first"
    ),
    by_rules(
        reads_do_not_wait_for_writes,
        "rule of functionalize: reads apply what is queued",
        replace(RULES, must_apply=reads_do_not_wait_for_writes),
    ),
    instead_of(
        "overwrites",
        masks_store_over_all,
        "overwrites of reference_pass/operator_forms.py",
        "liveness",
        rules=replace(RULES, overwrites=masks_store_over_all),
    ),
    after_functionalize(casts_are_left_out, "pytorch/pytorch#77125"),
)
