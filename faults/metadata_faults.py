"""Faults that change no result: metadata that is not true, mutation where the next pass relies on there being none."""

from __future__ import annotations

import contextlib
import copy

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from faults.fault import Fault, Inputs, after_noops, after_reinplace, fault
from oracles.stage import Stage
from programs.execution import ProgramFunction, as_graph
from reference_pass.alias_analysis import operand_storages, storage_of
from reference_pass.functionalize import functionalize
from reference_pass.operator_forms import EPILOGUE, aten, bind, unbind, writes
from targets.target import Build, Function


def a_call_in_place_notes_a_new_tensor(graph_module: fx.GraphModule) -> None:
    """A call that became one in place keeps its metadata, which says that its result is a tensor of its own."""
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        if writes(node.target) and node.target not in EPILOGUE and isinstance(value, torch.Tensor):
            with value.fake_mode if isinstance(value, FakeTensor) else contextlib.nullcontext():
                node.meta["val"] = value.clone()


def _normalized(graph_module: fx.GraphModule) -> list[tuple[fx.Node, fx.Node]]:
    """Each call made again with its arguments in the order of the schema; the new nodes and the old ones."""
    pairs = []
    for node in list(graph_module.graph.nodes):
        if (
            isinstance(node.target, OpOverload)
            and node.users
            and isinstance(node.meta["val"], torch.Tensor)
        ):
            args, kwargs = unbind(node.target, bind(node.target, node.args, node.kwargs))
            with graph_module.graph.inserting_before(node):
                new = graph_module.graph.call_function(node.target, args, kwargs)
            node.replace_all_uses_with(new)
            graph_module.graph.erase_node(node)
            pairs.append((new, node))
    return pairs


def new_nodes_have_metadata_of_their_operands(graph_module: fx.GraphModule) -> None:
    """A pass that writes calls in another form takes the metadata of new nodes from their first operands."""
    for new, old in _normalized(graph_module):
        operand = next(iter(new.all_input_nodes), old)
        new.meta = copy.copy(operand.meta)


def _without_mutation(function: Function, inputs: Inputs) -> fx.GraphModule:
    if isinstance(function, ProgramFunction):
        function = fx.GraphModule(torch.nn.Module(), as_graph(function.program))
    return functionalize(function, *inputs)


def new_tensors_are_written(function: Function, inputs: Inputs) -> Build:
    """Functionalization leaves a negation in place where it writes a new tensor, which no result shows."""
    graph_module = _without_mutation(function, inputs)
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.target is aten.neg.default:
            with graph.inserting_before(node):
                new = graph.call_function(aten.clone.default, node.args)
                new.meta = dict(node.meta)
            node.target, node.args = aten.neg_.default, (new,)
    graph_module.recompile()
    return Build(graph_module, [Stage("functional", graph_module, functional=True)])


def inputs_are_written_in_the_middle(graph_module: fx.GraphModule) -> None:
    """An input is written before the graph ends: as soon as nothing will read it, but with more to be computed."""
    nodes = list(graph_module.graph.nodes)
    for node in nodes:
        place, source = node.args[:2] if node.target is aten.copy_.default else (None, None)
        if isinstance(place, fx.Node) and place.op == "placeholder" and isinstance(source, fx.Node):
            between = nodes[nodes.index(source) + 1 : nodes.index(node)]
            storage = storage_of(place.meta["val"])
            if not any(storage in operand_storages(each) for each in between):
                source.append(node)


FAULTS: tuple[Fault, ...] = (
    after_reinplace(
        a_call_in_place_notes_a_new_tensor,
        "rule of update_metadata: who shares storage with whom",
    ),
    after_reinplace(new_nodes_have_metadata_of_their_operands, "pytorch/pytorch#120116"),
    fault(
        new_tensors_are_written,
        "torch/_inductor/fx_passes/README.md: no mutation but a copy_ epilogue",
        new_tensors_are_written,
    ),
    after_noops(
        inputs_are_written_in_the_middle,
        "torch/_inductor/fx_passes/README.md: no mutation but a copy_ epilogue",
    ),
)
