"""Faults of outputs: the right numbers in the wrong place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from faults.fault import Fault, after_functionalize, by_rules
from reference_pass.alias_analysis import Geometry, storage_of
from reference_pass.emission import contiguous_strides
from reference_pass.functionalize import RULES
from reference_pass.operator_forms import aten, nodes_in
from reference_pass.regions import Size


def _instead(
    graph_module: fx.GraphModule, node: fx.Node, op: Any, *args: Any, **kwargs: Any
) -> None:
    """Return the result of a call on a returned node in its place."""
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        new = graph_module.graph.call_function(op, (node, *args), kwargs)
    output.replace_input_with(node, new)


def _returned(graph_module: fx.GraphModule) -> list[fx.Node]:
    found = nodes_in(graph_module.graph.output_node().args)
    return [node for node in dict.fromkeys(found) if isinstance(node.meta["val"], torch.Tensor)]


def output_is_no_alias_any_more(graph_module: fx.GraphModule) -> None:
    """An output that is a view of an input is returned as a copy of it."""
    inputs = {
        storage_of(node.meta["val"])
        for node in graph_module.graph.nodes
        if node.op == "placeholder"
    }
    for node in _returned(graph_module):
        if node.op != "placeholder" and storage_of(node.meta["val"]) in inputs:
            _instead(graph_module, node, aten.clone.default)


def output_is_no_input_any_more(graph_module: fx.GraphModule) -> None:
    """An output that is an input is returned as another tensor on the same memory."""
    for node in _returned(graph_module):
        if node.op == "placeholder":
            _instead(graph_module, node, aten.alias.default)


def outputs_are_no_aliases_of_each_other(graph_module: fx.GraphModule) -> None:
    """Of two outputs that share memory, the second is returned as a copy."""
    seen: set[int] = set()
    for node in _returned(graph_module):
        storage = storage_of(node.meta["val"])
        if storage in seen and node.op != "placeholder":
            _instead(graph_module, node, aten.clone.default)
        seen.add(storage)


def last_output_is_not_returned_again(graph_module: fx.GraphModule) -> None:
    """A last output that was returned before, as an earlier one, is left out."""
    output = graph_module.graph.output_node()
    returned = list(output.args[0])  # type: ignore[arg-type]
    while returned and returned[-1] in returned[:-1]:
        returned.pop()
    output.args = (tuple(returned),)


def output_is_contiguous(graph_module: fx.GraphModule) -> None:
    """A new tensor is returned in row-major order, whatever strides it has in eager."""
    returned = _returned(graph_module)
    inputs = {
        storage_of(node.meta["val"])
        for node in graph_module.graph.nodes
        if node.op == "placeholder"
    }
    storages = [storage_of(node.meta["val"]) for node in returned]
    for node, storage in zip(returned, storages, strict=True):
        if storage not in inputs and storages.count(storage) == 1:
            _instead(graph_module, node, aten.clone.default, memory_format=torch.contiguous_format)


def a_copy_is_made_contiguous(geometry: Geometry) -> Sequence[Size]:
    """A new tensor that does not lie as in eager is laid out in row-major order."""
    return contiguous_strides(geometry.sizes)


FAULTS: tuple[Fault, ...] = (
    after_functionalize(
        output_is_no_alias_any_more,
        "rule of functionalize: outputs share memory with inputs as in eager",
    ),
    after_functionalize(
        output_is_no_input_any_more,
        "rule of functionalize: an output that is an input is that very object",
    ),
    after_functionalize(outputs_are_no_aliases_of_each_other, "pytorch/pytorch#89532"),
    after_functionalize(
        last_output_is_not_returned_again, "rule of functionalize: as many outputs as in eager"
    ),
    after_functionalize(output_is_contiguous, "pytorch/pytorch#142118"),
    by_rules(
        a_copy_is_made_contiguous,
        "pytorch/pytorch#133512",
        replace(RULES, result_strides=a_copy_is_made_contiguous),
    ),
)
