"""`update_metadata`: true after any rewrite, and no node runs that need not."""

from __future__ import annotations

from unittest import mock

import torch

from aliasproof.reference_pass import functionalize, update_metadata
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.eager import fake_execution
from aliasproof.reference_pass.pipeline import metadata_is_true

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


def moved(x):
    parts = (
        x.view(2, 3),
        x[1:4],
        x.t(),
        x.unsqueeze(0),
        x.expand(2, 6),
        aten.split.Tensor(x, 4)[1],
    )
    return (x + 1, x[2:].clone(), *(part * 2 for part in parts))


def test_views_of_an_operand_that_moved_move_with_it():
    graph_module = functionalize(moved, torch.arange(6.0))
    nodes = {node.name: node for node in graph_module.graph.nodes}
    (x,) = graph_module.graph.find_nodes(op="placeholder")
    with graph_module.graph.inserting_after(x):
        buffer = graph_module.graph.call_function(aten.new_zeros.default, (x, [9]))
    with graph_module.graph.inserting_after(buffer):
        part = graph_module.graph.call_function(aten.slice.Tensor, (buffer, 0, 3, 9))
    for user in list(x.users):
        if user is not buffer:
            user.replace_input_with(x, part)
    update_metadata(graph_module)
    assert nodes["slice_1"].meta["val"].storage_offset() == 4
    assert metadata_is_true(graph_module) is None


def test_views_of_an_operand_with_another_layout_are_run():
    graph_module, nodes = graph_and_nodes()
    (x,) = graph_module.graph.find_nodes(op="placeholder")
    with graph_module.graph.inserting_after(x):
        wide = graph_module.graph.call_function(aten.unsqueeze.default, (x, 0))
    nodes["view"].replace_input_with(x, wide)
    with mock.patch.object(fake_execution, "run_call", wraps=fake_execution.run_call) as run:
        update_metadata(graph_module)
    assert "view" in {call.args[0].name for call in run.call_args_list}
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
