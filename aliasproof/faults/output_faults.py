"""Faults of outputs: the right values in the wrong memory or layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aliasproof.faults.fault import Fault, after_functionalize, by_rule
from aliasproof.reference_pass.calls.nested import nodes_in
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.calls.storages import Geometry, storage_of
from aliasproof.reference_pass.regions import Size, contiguous_strides


def _instead(
    graph_module: fx.GraphModule, node: fx.Node, op: Any, *args: Any, **kwargs: Any
) -> None:
    """Return the result of a call on a returned node instead of the node."""
    output = graph_module.graph.output_node()
    # An input may change until the end. Any other tensor has its values when it is computed, and
    # a call behind the epilogue would be a fault of its own.
    before = output if node.op == "placeholder" else node.next
    with graph_module.graph.inserting_before(before):
        new = graph_module.graph.call_function(op, (node, *args), kwargs)
    output.replace_input_with(node, new)


def _returned_nodes(graph_module: fx.GraphModule) -> list[fx.Node]:
    returned = nodes_in(graph_module.graph.output_node().args)
    return [node for node in dict.fromkeys(returned) if isinstance(node.meta["val"], torch.Tensor)]


def _place(node: fx.Node) -> tuple[object, ...]:
    value = node.meta["val"]
    return storage_of(value), value.dtype, value.shape, value.stride(), value.storage_offset()


def _follows_epilogue(node: fx.Node) -> bool:
    """True if a node follows a copy_ of the epilogue, where only views may be."""
    return any(
        earlier.target is aten.copy_.default and earlier < node for earlier in node.graph.nodes
    )


def aliased_output_is_copied(graph_module: fx.GraphModule) -> None:
    """An output that is a view of an unmutated input is returned as a copy."""
    inputs = {
        storage_of(node.meta["val"])
        for node in graph_module.graph.nodes
        if node.op == "placeholder"
    }
    for node in _returned_nodes(graph_module):
        aliased = node.op != "placeholder" and storage_of(node.meta["val"]) in inputs
        if aliased and not _follows_epilogue(node):
            _instead(graph_module, node, aten.clone.default)


def returned_input_is_another_object(graph_module: fx.GraphModule) -> None:
    """An output that is an input is returned as another tensor object on the same memory."""
    for node in _returned_nodes(graph_module):
        if node.op == "placeholder":
            _instead(graph_module, node, aten.alias.default)


def view_of_an_output_is_that_output(graph_module: fx.GraphModule) -> None:
    """An output that is a view of another one, of its layout, becomes that very object."""
    returned = _returned_nodes(graph_module)
    for node in returned:
        bases = [base for base in node.all_input_nodes if base in returned]
        if bases and _place(bases[0]) == _place(node):
            graph_module.graph.output_node().replace_input_with(node, bases[0])


def second_aliased_output_is_copied(graph_module: fx.GraphModule) -> None:
    """The second of two outputs that share a storage is returned as a copy."""
    seen: set[int] = set()
    for node in _returned_nodes(graph_module):
        storage = storage_of(node.meta["val"])
        if storage in seen and node.op != "placeholder" and not _follows_epilogue(node):
            _instead(graph_module, node, aten.clone.default)
        seen.add(storage)


def repeated_last_output_is_left_out(graph_module: fx.GraphModule) -> None:
    """A last output that is also returned at an earlier index is left out."""
    output = graph_module.graph.output_node()
    returned = list(output.args[0])  # type: ignore[arg-type]
    # Only the last ones: without one in the middle, later outputs would have other indices.
    while returned and returned[-1] in returned[:-1]:
        returned.pop()
    output.args = (tuple(returned),)


def output_is_contiguous(graph_module: fx.GraphModule) -> None:
    """A new tensor is returned contiguous, whatever strides it has in eager."""
    returned = _returned_nodes(graph_module)
    inputs = {
        storage_of(node.meta["val"])
        for node in graph_module.graph.nodes
        if node.op == "placeholder"
    }
    storages = [storage_of(node.meta["val"]) for node in returned]
    for node, storage in zip(returned, storages, strict=True):
        is_new = storage not in inputs and storages.count(storage) == 1
        if is_new and not _follows_epilogue(node):
            _instead(graph_module, node, aten.clone.default, memory_format=torch.contiguous_format)


def new_tensor_is_made_contiguous(geometry: Geometry) -> Sequence[Size]:
    """A new tensor whose strides differ from eager is made contiguous."""
    return contiguous_strides(geometry.sizes)


FAULTS: tuple[Fault, ...] = (
    after_functionalize(
        aliased_output_is_copied,
        "rule of functionalize: outputs share memory with inputs as in eager",
    ),
    after_functionalize(
        returned_input_is_another_object,
        "rule of functionalize: an output that is an input is that very object",
    ),
    after_functionalize(view_of_an_output_is_that_output, "pytorch/pytorch#191449"),
    after_functionalize(second_aliased_output_is_copied, "pytorch/pytorch#89532"),
    after_functionalize(
        repeated_last_output_is_left_out, "rule of functionalize: as many outputs as in eager"
    ),
    after_functionalize(output_is_contiguous, "pytorch/pytorch#142118"),
    by_rule("result_strides", new_tensor_is_made_contiguous, "pytorch/pytorch#133512"),
)
