"""Faults: reinplacing without one of its conditions, or with a weaker one."""

from __future__ import annotations

import re

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.faults.fault import Fault, Passes, after_reinplace, weaker_condition
from aliasproof.reference_pass import conditions
from aliasproof.reference_pass.calls.operator_forms import (
    aten,
    facts,
    is_pointwise,
    out_form,
    writes,
)
from aliasproof.reference_pass.calls.regions import Region, is_dense, overlap
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.candidates import Candidate
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.pipeline import CONDITIONS

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


def dtype_is_not_compared(candidate: Candidate) -> str | None:
    """Condition (1a) compares the sizes of operand and result, but not their dtypes."""
    for slot in candidate.slots:
        if tuple(slot.destination.meta["val"].shape) != tuple(slot.value.shape):
            return f"{slot.destination} has another size"
    return None


FAULTS = (
    *map(_without, CONDITIONS),
    after_reinplace(result_is_computed_into_an_overlapping_view, "pytorch/pytorch#198270"),
    weaker_condition(
        dtype_is_not_compared,
        conditions.same_size_and_dtype,
        "condition (1a) of reinplace, weakened",
    ),
)
