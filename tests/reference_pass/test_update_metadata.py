"""`update_metadata`: true after any rewrite, and no node runs that need not."""

from __future__ import annotations

import torch

from reference_pass import functionalize, update_metadata
from reference_pass.alias_analysis import storage_of
from reference_pass.invariants import metadata_is_true

aten = torch.ops.aten


def chain(x):
    first = x.view(2, 3)
    second = first + 1
    third = second.t()
    return third * 2, third.sum()


def graph_and_nodes():
    graph_module = functionalize(chain, torch.arange(6.0))
    return graph_module, {node.name: node for node in graph_module.graph.nodes}


def test_a_graph_with_true_metadata_is_not_run():
    graph_module, _ = graph_and_nodes()
    assert update_metadata(graph_module) == 0


def test_a_graph_without_metadata_is_run_once():
    graph_module, nodes = graph_and_nodes()
    for node in nodes.values():
        node.meta.clear()
    assert update_metadata(graph_module, torch.arange(6.0)) == len(nodes) - 2
    assert metadata_is_true(graph_module) is None


def test_a_change_that_changes_no_value_stops_where_it_is():
    graph_module, nodes = graph_and_nodes()
    nodes["add"].target = aten.sub.Tensor
    assert update_metadata(graph_module) == 1


def test_a_change_of_layout_goes_through_to_the_end():
    graph_module, nodes = graph_and_nodes()
    with graph_module.graph.inserting_before(nodes["mul"]):
        copy = graph_module.graph.call_function(
            aten.clone.default, (nodes["t"],), {"memory_format": torch.contiguous_format}
        )
    nodes["mul"].replace_input_with(nodes["t"], copy)
    assert update_metadata(graph_module) == 2
    assert nodes["mul"].meta["val"].stride() == (2, 1)
    assert metadata_is_true(graph_module) is None


def test_a_view_of_another_tensor_shares_the_storage_of_that_one():
    graph_module, nodes = graph_and_nodes()
    nodes["t"].replace_input_with(nodes["add"], nodes["view"])
    assert update_metadata(graph_module) >= 1
    assert storage_of(nodes["t"].meta["val"]) == storage_of(nodes["view"].meta["val"])
    assert metadata_is_true(graph_module) is None


def test_an_op_made_in_place_gives_its_operand():
    graph_module, nodes = graph_and_nodes()
    nodes["mul"].target = aten.mul_.Tensor
    update_metadata(graph_module)
    assert nodes["mul"].meta["val"] is nodes["t"].meta["val"]
    assert metadata_is_true(graph_module) is None


def test_stale_metadata_is_found():
    graph_module, nodes = graph_and_nodes()
    nodes["mul"].meta["val"] = nodes["mul"].meta["val"].contiguous()
    assert "mul" in (metadata_is_true(graph_module) or "")
