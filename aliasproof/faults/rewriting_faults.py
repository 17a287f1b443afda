"""Faults of the passes on functional graphs: dropping, merging and reinplacing."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.faults.fault import (
    Fault,
    Faults,
    Passes,
    after_noops,
    after_reinplace,
    input_storages,
    instead_of_entries,
    weaker_condition,
    weaker_noop_rule,
)
from aliasproof.reference_pass import conditions
from aliasproof.reference_pass.calls.operand_reads import stored_over
from aliasproof.reference_pass.calls.operator_forms import (
    SCATTERS,
    aten,
    facts,
    is_pointwise,
    out_form,
    writes,
)
from aliasproof.reference_pass.calls.regions import Region, is_dense, overlap
from aliasproof.reference_pass.calls.storages import encoding, same_view, storage_of
from aliasproof.reference_pass.candidates import Candidate
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.eager.layout_conditions import no_use_of_location
from aliasproof.reference_pass.liveness import is_view
from aliasproof.reference_pass.pipeline import CONDITIONS
from aliasproof.reference_pass.planning.noops import (
    SOURCES,
    Duplicate,
    copy_is_not_returned,
    original_is_not_overwritten,
    same_metadata,
)

FAULTS = Faults()
plant = FAULTS.add

# --- copies, views, equal nodes and dead code -----------------------------------------------------


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


# --- reinplacing without one of its conditions, or with a weaker one ------------------------------

# The PyTorch issue in which the condition was missing, where one is known.
_MISSING_IN = {
    "no_self_overlap": "pytorch/pytorch#188084",
    "not_repeated": "review of pytorch/pytorch#80897",
    "no_overlapping_operand": "pytorch/pytorch#197829",
    "no_later_use": "pytorch/pytorch#122457",
    "dead_before_epilogue": "pytorch/pytorch#198094",
}


def _without(condition: Condition) -> Fault:
    name, doc = condition.__name__, (condition.__doc__ or "").split("\n", 1)[0]
    # "(2c), (5) A scatter is dropped ..." is the steps of reinplace and the rule itself.
    match = re.fullmatch(r"((?:\(\w+\)(?:, )?)*) ?(.*)", doc)
    assert match is not None  # both parts may be empty, so any line matches
    step, rule = match.groups()
    source = f"condition {name}" + (f" of step {step}" if step else "") + " of reinplace"
    if name in _MISSING_IN:
        source = f"{_MISSING_IN[name]}; {source}"
    others = [other for other in CONDITIONS if other is not condition]
    return Fault(
        f"without {name.replace('_', ' ')}",
        f"Reinplaces without this condition: {rule}",
        source,
        Passes(conditions=others),
    )


FAULTS.extend(map(_without, CONDITIONS))


@plant(after_reinplace, "pytorch/pytorch#198270")
def result_is_computed_into_an_overlapping_view(graph_module: fx.GraphModule) -> None:
    """The result of a pointwise op is computed into a view that overlaps an operand."""
    for copy in list(graph_module.graph.nodes):
        destination, source = copy.args[:2] if copy.target is aten.copy_.default else (None, None)
        if (
            not isinstance(destination, fx.Node)
            or not isinstance(source, fx.Node)
            or set(source.users) != {copy}
        ):
            continue
        form = (
            out_form(source.target)
            if isinstance(source.target, OpOverload) and is_pointwise(source.target)
            else None
        )
        written, result = destination.meta["val"], source.meta["val"]
        if (
            form is None
            or (written.shape, written.dtype) != (result.shape, result.dtype)
            or not _operands_start_behind(source, written, form)
        ):
            continue
        between = (node for node in graph_module.graph.nodes if source < node < copy)
        if any(writes(node.target) for node in between):
            continue
        kwargs = {**source.kwargs, facts(form).outs[0]: destination}
        with graph_module.graph.inserting_before(copy):
            new = graph_module.graph.call_function(form, source.args, kwargs)
            new.meta["val"] = written
        graph_module.graph.erase_node(copy)
        graph_module.graph.erase_node(source)


def _operands_start_behind(node: fx.Node, written: torch.Tensor, form: OpOverload) -> bool:
    """True if each operand that overlaps what is written starts at a higher offset.

    Kernels go from low to high addresses, so they mostly read such operands before they write.
    """
    # Most kernels refuse operands that overlap if both are dense. Generated out= forms compute a
    # new tensor and copy it, so they refuse nothing.
    computes_apart = torch.Tag.generated in form.tags
    read = [operand.meta["val"] for operand in node.all_input_nodes]
    shared = [
        operand
        for operand in read
        if storage_of(operand) == storage_of(written)
        and overlap(Region.of(operand), Region.of(written))
    ]
    return all(
        operand.storage_offset() > written.storage_offset()
        and operand.stride() == written.stride()
        and (computes_apart or not is_dense(Region.of(operand)))
        for operand in shared
    )


@plant(
    weaker_condition,
    conditions.same_size_and_dtype,
    "condition (1a) of reinplace, weakened",
)
def dtype_is_not_compared(candidate: Candidate) -> str | None:
    """Condition (1a) compares the sizes of operand and result, but not their dtypes."""
    for slot in candidate.slots:
        if tuple(slot.destination.meta["val"].shape) != tuple(slot.value.shape):
            return f"{slot.destination} has another size"
    return None
