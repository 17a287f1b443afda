"""Faults: reinplacing with a condition left out, or with a weaker one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import fx
from torch._ops import OpOverload

from faults.fault import Fault, Passes, after_reinplace, fault
from reference_pass import conditions
from reference_pass.alias_analysis import storage_of
from reference_pass.candidates import Candidate
from reference_pass.conditions import CONDITIONS, Condition
from reference_pass.operator_forms import aten, facts, is_pointwise, out_form, writes
from reference_pass.regions import Region, is_dense, overlap

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
    step, rule = re.fullmatch(r"((?:\(\w+\)(?:, )?)*) ?(.*)", doc).groups()  # type: ignore[union-attr]
    source = f"condition {name}" + (f" of step {step}" if step else "") + " of reinplace"
    if name in _MISSING_IN:
        source = f"{_MISSING_IN[name]}; {source}"
    others = [each for each in CONDITIONS if each is not condition]
    return Fault(
        f"without {name.replace('_', ' ')}",
        f"Reinplaces without asking: {rule}",
        source,
        Passes(conditions=others),
    )


def results_go_straight_into_their_place(graph_module: fx.GraphModule) -> None:
    """A pointwise op whose result is copied into a view is done there at once, also if it reads bytes ahead of that view."""
    for copy in list(graph_module.graph.nodes):
        place, source = copy.args[:2] if copy.target is aten.copy_.default else (None, None)
        if (
            not isinstance(place, fx.Node)
            or not isinstance(source, fx.Node)
            or set(source.users) != {copy}
        ):
            continue
        form = (
            out_form(source.target)
            if isinstance(source.target, OpOverload) and is_pointwise(source.target)
            else None
        )
        one, other = place.meta["val"], source.meta["val"]
        if (
            form is None
            or (one.shape, one.dtype) != (other.shape, other.dtype)
            or not _lies_ahead(source, one, form)
        ):
            continue
        if any(writes(each.target) for each in _between(source, copy)):
            continue
        kwargs = {**source.kwargs, facts(form).outs[0]: place}
        with graph_module.graph.inserting_before(copy):
            graph_module.graph.call_function(form, source.args, kwargs).meta["val"] = one
        graph_module.graph.erase_node(copy)
        graph_module.graph.erase_node(source)


def _between(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    each = first.next
    while each is not last:
        yield each
        each = each.next


def _lies_ahead(node: fx.Node, place: torch.Tensor, form: OpOverload) -> bool:
    """True if each operand that overlaps a place lies ahead of it; most kernels of torch refuse where both are dense."""
    computes_apart = torch.Tag.generated in form.tags
    read = [each.meta["val"] for each in node.all_input_nodes]
    shared = [
        each
        for each in read
        if storage_of(each) == storage_of(place) and overlap(Region.of(each), Region.of(place))
    ]
    return all(
        each.storage_offset() > place.storage_offset()
        and each.stride() == place.stride()
        and (computes_apart or not is_dense(Region.of(each)))
        for each in shared
    )


def sizes_alone(candidate: Candidate) -> str | None:
    """The operand is asked for the size of the result, not for its dtype."""
    for slot in candidate.slots:
        if tuple(slot.destination.meta["val"].shape) != tuple(slot.value.shape):
            return f"{slot.destination} has another size"
    return None


def _weaker(condition: Condition, by: Condition, source: str) -> Fault:
    return fault(
        by, source, Passes(conditions=[by if each is condition else each for each in CONDITIONS])
    )


FAULTS = (
    *map(_without, CONDITIONS),
    after_reinplace(results_go_straight_into_their_place, "pytorch/pytorch#198270"),
    _weaker(conditions.same_size_and_dtype, sizes_alone, "condition (1a) of reinplace, weakened"),
)
