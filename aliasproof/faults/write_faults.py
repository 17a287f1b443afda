"""Faults of writes: which values are written, and in which order."""

from __future__ import annotations

from dataclasses import replace

from torch import fx
from torch._ops import OpOverload

from aliasproof.faults.fault import Fault, after_functionalize, by_rule, instead_of
from aliasproof.reference_pass.calls import operand_reads
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.functionalize import RULES
from aliasproof.reference_pass.views import SCATTERS


def first_of_two_scatters_is_dropped(graph_module: fx.GraphModule) -> None:
    """The first of two nested scatters counts as dead, whatever bytes the second overwrites."""
    for node in list(graph_module.graph.nodes):
        base = node.args[0] if node.target in SCATTERS else None
        if isinstance(base, fx.Node) and base.target is node.target and len(base.users) == 1:
            node.update_arg(0, base.args[0])


def two_scatters_are_exchanged(graph_module: fx.GraphModule) -> None:
    """The second of two nested scatters is done first, as if the two could not overlap."""
    for node in list(graph_module.graph.nodes):
        base = node.args[0] if node.target in SCATTERS else None
        if (
            not isinstance(base, fx.Node)
            or base.target not in SCATTERS
            or set(base.users) != {node}
            or node.args[1] is base
        ):
            continue
        # base(a, ...) then node(base, ...) becomes node(a, ...) then base(node, ...).
        node.update_arg(0, base.args[0])
        users = [user for user in node.users if user is not base]
        node.append(base)
        for user in users:
            user.replace_input_with(node, base)
        base.update_arg(0, node)
        return


def reads_ignore_queued_writes(queued: int, value: fx.Node | None) -> bool:
    """A view is read without the queued writes through other views of its storage."""
    return value is None


def masked_write_counts_as_overwrite(op: OpOverload) -> bool:
    """A write through a mask or an index counts as an overwrite of all elements of its operand."""
    return op in _PARTIAL or _overwrites(op)


def casts_are_left_out(graph_module: fx.GraphModule) -> None:
    """A result is written without the cast to the dtype of the mutated tensor."""
    for node in list(graph_module.graph.nodes):
        if node.target is aten._to_copy.default:
            node.replace_all_uses_with(node.args[0])


_overwrites = operand_reads.overwrites
_PARTIAL = {
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.index_fill.int_Scalar,
    aten.index_copy.default,
    aten.index_put.default,
    aten.scatter.src,
    aten.scatter.value,
}

FAULTS: tuple[Fault, ...] = (
    after_functionalize(
        first_of_two_scatters_is_dropped,
        "rule of functionalize: all queued writes are applied",
    ),
    after_functionalize(
        two_scatters_are_exchanged, "rule of functionalize: queued writes are applied oldest first"
    ),
    by_rule(
        "must_apply",
        reads_ignore_queued_writes,
        "rule of functionalize: a read first applies the queued writes",
    ),
    instead_of(
        "overwrites",
        masked_write_counts_as_overwrite,
        "overwrites of reference_pass/calls/operand_reads.py",
        "liveness",
        rules=replace(RULES, overwrites=masked_write_counts_as_overwrite),
    ),
    after_functionalize(casts_are_left_out, "pytorch/pytorch#77125"),
)
