"""Faults of dropping and merging: copies and views that are no no-ops, nodes that are not equal, code that is not dead."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from faults.fault import Fault, Passes, after_noops, after_reinplace, fault, instead_of_entries
from reference_pass.alias_analysis import encoding, same_view, storage_of
from reference_pass.liveness import is_view, stored_over
from reference_pass.noops import (
    NOOP_RULES,
    SOURCES,
    Duplicate,
    NoOpRule,
    copy_is_not_returned,
    no_use_of_location,
    original_is_not_overwritten,
    same_metadata,
)
from reference_pass.operand_access import SCATTERS
from reference_pass.operator_forms import facts
from reference_pass.regions import Region


def copy_of_an_input_that_changes(duplicate: Duplicate) -> bool:
    """A copy is dropped although the epilogue stores over the original before the copy is read."""
    return True


def copy_that_is_returned(duplicate: Duplicate) -> bool:
    """A copy is dropped although it is returned, so the caller gets the memory of another tensor."""
    return True


def copy_that_moves(duplicate: Duplicate) -> bool:
    """A copy is dropped although the original has other strides."""
    old, new = duplicate.value, duplicate.replacement
    return encoding(old) == encoding(new) and old.shape == new.shape


def copy_that_starts_elsewhere(duplicate: Duplicate) -> bool:
    """A copy is dropped although the original starts elsewhere in its storage, and as_strided goes by that."""
    return True


def scatter_of_the_same_metadata(node: fx.Node, given: dict[str, Any]) -> Any:
    """A scatter is dropped if its source has the size, strides and offset of what it stores over: in whatever storage."""
    source, stored = given["src"].meta["val"], stored_over(node)
    same = encoding(source) == encoding(stored) and Region.of(source).same(Region.of(stored))
    return given["self"] if same else None


def view_that_is_returned(graph_module: fx.GraphModule) -> None:
    """A view that shows all of its operand is dropped although it is returned, and eager gives a tensor of its own."""
    for node in list(graph_module.graph.nodes):
        if (
            is_view(node)
            and isinstance(node.meta["val"], torch.Tensor)
            and isinstance(node.args[0], fx.Node)
        ):
            shown = node.args[0].meta["val"]
            if isinstance(shown, torch.Tensor) and same_view(node.meta["val"], shown):
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


def _weaker(right: NoOpRule, wrong: NoOpRule, source: str) -> Fault:
    return fault(
        wrong, source, Passes(noop_rules=[wrong if each is right else each for each in NOOP_RULES])
    )


FAULTS: tuple[Fault, ...] = (
    _weaker(original_is_not_overwritten, copy_of_an_input_that_changes, "pytorch/pytorch#198131"),
    _weaker(copy_is_not_returned, copy_that_is_returned, "pytorch/pytorch#114464"),
    _weaker(
        same_metadata,
        copy_that_moves,
        "rule of remove_noops: the copy lies in memory as the original does",
    ),
    _weaker(no_use_of_location, copy_that_starts_elsewhere, "pytorch/pytorch#196777"),
    instead_of_entries(
        SOURCES,
        scatter_of_the_same_metadata,
        "rule of remove_noops: its own view is stored back",
        *SCATTERS,
    ),
    after_noops(view_that_is_returned, "pytorch/pytorch#191449"),
    after_noops(equal_outputs_are_merged, "pytorch/pytorch#18500"),
    after_reinplace(equal_nodes_around_a_write, "pytorch/pytorch#183969"),
    after_reinplace(calls_in_place_are_dead_code, "pytorch/pytorch#162267"),
    after_reinplace(out_calls_are_dead_code, "pytorch/pytorch#190716"),
)
