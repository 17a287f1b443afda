"""Faults of dropping and merging: copies and views that are no no-ops, nodes that are not equal, code that is not dead."""

from __future__ import annotations

from unittest import mock

import torch
from torch import fx
from torch._ops import OpOverload

from faults.fault import Fault, after_noops, after_reinplace, instead_of
from reference_pass import noops
from reference_pass.alias_analysis import same_numbers, storage_of
from reference_pass.liveness import Liveness, is_view
from reference_pass.operator_forms import facts
from reference_pass.regions import Region


def copy_of_an_input_that_changes(copy: fx.Node, original: fx.Node, liveness: Liveness) -> bool:
    """A copy is dropped although the epilogue stores over the original before the copy is read."""
    with mock.patch.object(liveness.memory(original.meta["val"]), "writes", []):
        return _nobody_can_tell(copy, original, liveness)


def copy_that_is_returned(copy: fx.Node, original: fx.Node, liveness: Liveness) -> bool:
    """A copy is dropped although it is returned, so the caller gets the memory of another tensor."""
    with mock.patch.object(liveness, "escapes", return_value=False):
        return _nobody_can_tell(copy, original, liveness)


def copy_that_moves(one: torch.Tensor, other: torch.Tensor) -> bool:
    """A copy is dropped although the original has other strides."""
    bits = (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
    return bits and (one.dtype, one.shape) == (other.dtype, other.shape)


def copy_that_starts_elsewhere(value: fx.Node, liveness: Liveness) -> bool:
    """A copy is dropped although the original starts elsewhere in its storage, and as_strided goes by that."""
    return False


def scatter_of_the_same_metadata(one: torch.Tensor, other: torch.Tensor) -> bool:
    """A scatter is dropped if its source has the size, strides and offset of what it stores over: in whatever storage."""
    return (one.dtype, one.is_conj(), one.is_neg()) == (
        other.dtype,
        other.is_conj(),
        other.is_neg(),
    ) and Region.of(one).same(Region.of(other))


def view_that_is_returned(graph_module: fx.GraphModule) -> None:
    """A view that shows all of its operand is dropped although it is returned, and eager gives a tensor of its own."""
    for node in list(graph_module.graph.nodes):
        if (
            is_view(node)
            and isinstance(node.meta["val"], torch.Tensor)
            and isinstance(node.args[0], fx.Node)
        ):
            shown = node.args[0].meta["val"]
            if isinstance(shown, torch.Tensor) and same_numbers(node.meta["val"], shown):
                node.replace_all_uses_with(node.args[0])
                graph_module.graph.erase_node(node)


def _merge(graph_module: fx.GraphModule) -> None:
    first: dict[tuple[object, str], fx.Node] = {}
    for node in list(graph_module.graph.nodes):
        if node.op != "call_function" or (
            isinstance(node.target, OpOverload) and facts(node.target).writes
        ):
            continue
        earlier = first.setdefault((node.target, f"{node.args} {node.kwargs}"), node)
        if earlier is not node:
            node.replace_all_uses_with(earlier)
            graph_module.graph.erase_node(node)


def equal_outputs_are_merged(graph_module: fx.GraphModule) -> None:
    """Equal nodes become one although both are returned, so the caller gets one storage where eager gives two."""
    _merge(graph_module)


def equal_nodes_around_a_write(graph_module: fx.GraphModule) -> None:
    """Equal nodes become one although their operand is written in between."""
    _merge(graph_module)


def calls_in_place_are_dead_code(graph_module: fx.GraphModule) -> None:
    """Dead code elimination goes by users alone, and after reinplacing, users use the operand of a call in place."""
    inputs = {storage_of(n.meta["val"]) for n in graph_module.graph.nodes if n.op == "placeholder"}
    for node in reversed(list(graph_module.graph.nodes)):
        if (
            node.op == "call_function"
            and not node.users
            and storage_of(node.meta["val"]) not in inputs
        ):
            graph_module.graph.erase_node(node)


def out_calls_are_dead_code(graph_module: fx.GraphModule) -> None:
    """Dead code elimination takes a call into a buffer for pure."""
    for node in reversed(list(graph_module.graph.nodes)):
        if isinstance(node.target, OpOverload) and facts(node.target).outs and not node.users:
            graph_module.graph.erase_node(node)


_nobody_can_tell = noops._nobody_can_tell

FAULTS: tuple[Fault, ...] = (
    instead_of(
        "_nobody_can_tell", copy_of_an_input_that_changes, "pytorch/pytorch#198131", "noops"
    ),
    instead_of("_nobody_can_tell", copy_that_is_returned, "pytorch/pytorch#114464", "noops"),
    instead_of(
        "_alike",
        copy_that_moves,
        "rule of remove_noops: the copy lies in memory as the original does",
        "noops",
    ),
    instead_of("_counts_from_start", copy_that_starts_elsewhere, "pytorch/pytorch#196777", "noops"),
    instead_of(
        "same_numbers",
        scatter_of_the_same_metadata,
        "rule of remove_noops: its own view is stored back",
        "noops",
    ),
    after_noops(view_that_is_returned, "pytorch/pytorch#191449"),
    after_noops(equal_outputs_are_merged, "pytorch/pytorch#18500"),
    after_reinplace(equal_nodes_around_a_write, "pytorch/pytorch#183969"),
    after_reinplace(calls_in_place_are_dead_code, "pytorch/pytorch#162267"),
    after_reinplace(out_calls_are_dead_code, "pytorch/pytorch#190716"),
)
