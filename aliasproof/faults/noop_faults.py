"""Faults of dropping and merging: copies, views, equal nodes and dead code."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.faults.fault import (
    Faults,
    after_noops,
    after_reinplace,
    input_storages,
    instead_of_entries,
    weaker_noop_rule,
)
from aliasproof.reference_pass.calls.operand_reads import stored_over
from aliasproof.reference_pass.calls.operator_forms import SCATTERS, facts, writes
from aliasproof.reference_pass.calls.regions import Region, overlap
from aliasproof.reference_pass.calls.storages import encoding, same_view, storage_of
from aliasproof.reference_pass.eager.layout_conditions import no_use_of_location
from aliasproof.reference_pass.liveness import is_view
from aliasproof.reference_pass.planning.noops import (
    SOURCES,
    Duplicate,
    copy_is_not_returned,
    original_is_not_overwritten,
    same_metadata,
)

FAULTS = Faults()
plant = FAULTS.add


@plant(weaker_noop_rule, original_is_not_overwritten, "pytorch/pytorch#198131")
def copy_of_a_mutated_input_is_dropped(duplicate: Duplicate) -> bool:
    """A copy is dropped although the epilogue overwrites the original before the copy is read."""
    return True


@plant(
    weaker_noop_rule,
    original_is_not_overwritten,
    "rule of remove_noops: the epilogue does not overwrite what it reads",
)
def copy_is_dropped_before_it_is_stored_elsewhere(duplicate: Duplicate) -> bool:
    """A copy is dropped although the copy_ that reads it overwrites other bytes of the original."""
    live, region = duplicate.liveness, Region.of(duplicate.replacement)
    made, last = live.position[duplicate.node], live.last_read(duplicate.node)
    writes = [] if duplicate.is_view else live.memory(duplicate.replacement).writes
    return not any(made < write.at < last and overlap(write.region, region) for write in writes)


@plant(weaker_noop_rule, copy_is_not_returned, "pytorch/pytorch#114464")
def returned_copy_is_dropped(duplicate: Duplicate) -> bool:
    """A copy is dropped although it is returned, so the output is an alias of the original."""
    return True


@plant(
    weaker_noop_rule, same_metadata, "rule of remove_noops: copy and original have the same layout"
)
def copy_with_other_strides_is_dropped(duplicate: Duplicate) -> bool:
    """A copy is dropped although the original has other strides."""
    old, new = duplicate.value, duplicate.replacement
    return encoding(old) == encoding(new) and old.shape == new.shape


@plant(weaker_noop_rule, no_use_of_location, "pytorch/pytorch#196777")
def copy_is_dropped_before_as_strided(duplicate: Duplicate) -> bool:
    """A copy is dropped although as_strided of the original shows other bytes than of the copy."""
    return True


@plant(
    instead_of_entries,
    SOURCES,
    "rule of remove_noops: a scatter of a view of its own base does nothing",
    *SCATTERS,
)
def scatter_with_equal_layout_is_dropped(node: fx.Node, given: dict[str, Any]) -> Any:
    """A scatter is dropped if its source has the layout of what it overwrites, in any storage."""
    source, stored = given["src"].meta["val"], stored_over(node)
    same = encoding(source) == encoding(stored) and Region.of(source).same(Region.of(stored))
    return given["self"] if same else None


@plant(after_noops, "pytorch/pytorch#191449")
def returned_view_is_dropped(graph_module: fx.GraphModule) -> None:
    """A view of all of its operand is dropped although eager returns it as a new tensor object."""
    for node in list(graph_module.graph.nodes):
        view, operand = node.meta.get("val"), node.args[0] if node.args else None
        if not is_view(node) or not isinstance(operand, fx.Node):
            continue
        whole = operand.meta["val"]
        if not isinstance(view, torch.Tensor) or not isinstance(whole, torch.Tensor):
            continue
        # `same_view` ignores dimensions of size one, and a view may add or remove these.
        same_layout = (view.shape, view.stride()) == (whole.shape, whole.stride())
        if same_layout and same_view(view, whole):
            node.replace_all_uses_with(operand)
            graph_module.graph.erase_node(node)


def _merge(graph_module: fx.GraphModule) -> None:
    first: dict[tuple[object, str], fx.Node] = {}
    for node in list(graph_module.graph.nodes):
        if node.op != "call_function" or writes(node.target):
            continue
        # Arguments are compared as text, in which an operand is its name.
        earlier = first.setdefault((node.target, f"{node.args} {node.kwargs}"), node)
        if earlier is not node:
            node.replace_all_uses_with(earlier)
            graph_module.graph.erase_node(node)


@plant(after_noops, "pytorch/pytorch#18500")
def equal_outputs_are_merged(graph_module: fx.GraphModule) -> None:
    """Equal nodes are merged although both are returned, so two outputs share a storage."""
    _merge(graph_module)


@plant(after_reinplace, "pytorch/pytorch#183969")
def equal_nodes_around_a_write_are_merged(graph_module: fx.GraphModule) -> None:
    """Equal nodes are merged although their operand is overwritten between them."""
    _merge(graph_module)


@plant(after_reinplace, "pytorch/pytorch#162267")
def in_place_calls_are_dead_code(graph_module: fx.GraphModule) -> None:
    """Dead code elimination looks at users only, and an in-place call may have none."""
    inputs = input_storages(graph_module)
    # Writes to inputs stay: `epilogue_is_dead_code` is another fault.
    for node in reversed(list(graph_module.graph.nodes)):
        if (
            node.op == "call_function"
            and not node.users
            and storage_of(node.meta["val"]) not in inputs
        ):
            graph_module.graph.erase_node(node)


@plant(after_reinplace, "pytorch/pytorch#190716")
def out_calls_are_dead_code(graph_module: fx.GraphModule) -> None:
    """Dead code elimination treats a call with out= as pure."""
    for node in reversed(list(graph_module.graph.nodes)):
        if isinstance(node.target, OpOverload) and facts(node.target).outs and not node.users:
            graph_module.graph.erase_node(node)
