"""Faults that change no result: wrong metadata, or mutation that the next pass does not expect."""

from __future__ import annotations

import contextlib
import copy

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from aliasproof.faults.fault import Fault, Inputs, after_noops, after_reinplace, fault
from aliasproof.oracles.stage import Stage
from aliasproof.reference_pass.calls.operator_forms import EPILOGUE, aten, bind, unbind, writes
from aliasproof.reference_pass.calls.storages import operand_storages, storage_of
from aliasproof.reference_pass.pipeline import functionalize
from aliasproof.targets.target import Build, Function
from aliasproof.targets.tracing import untraced


def in_place_call_keeps_its_metadata(graph_module: fx.GraphModule) -> None:
    """An in-place call keeps the metadata of the functional call: its result has a new storage."""
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        if writes(node.target) and node.target not in EPILOGUE and isinstance(value, torch.Tensor):
            with value.fake_mode if isinstance(value, FakeTensor) else contextlib.nullcontext():
                node.meta["val"] = value.clone()


def _normalize_calls(graph_module: fx.GraphModule) -> list[tuple[fx.Node, fx.Node]]:
    """Replace each call by one with its arguments in schema order. Pairs of new and old nodes."""
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
    """A pass that normalizes calls copies the metadata of each new node from its first operand."""
    for new, old in _normalize_calls(graph_module):
        operand = next(iter(new.all_input_nodes), old)
        new.meta = copy.copy(operand.meta)


def new_tensors_are_mutated(function: Function, inputs: Inputs) -> Build:
    """Functionalization emits an in-place negation of a new tensor. No result shows it."""
    graph_module = functionalize(untraced(function), *inputs)
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.target is aten.neg.default:
            with graph.inserting_before(node):
                new = graph.call_function(aten.clone.default, node.args)
                new.meta = dict(node.meta)
            node.target, node.args = aten.neg_.default, (new,)
    graph_module.recompile()
    return Build(graph_module, [Stage("functional", graph_module, functional=True)])


def inputs_are_written_before_the_end(graph_module: fx.GraphModule) -> None:
    """An input is written after its last read, but before the rest of the graph is computed."""
    nodes = list(graph_module.graph.nodes)
    for node in nodes:
        destination, source = node.args[:2] if node.target is aten.copy_.default else (None, None)
        if not isinstance(destination, fx.Node) or not isinstance(source, fx.Node):
            continue
        storage = storage_of(destination.meta["val"])
        between = nodes[nodes.index(source) + 1 : nodes.index(node)]
        # With such a read, the results are wrong: see `inputs_are_written_too_early`.
        read_later = any(storage in operand_storages(other) for other in between)
        if destination.op == "placeholder" and not read_later:
            source.append(node)


FAULTS: tuple[Fault, ...] = (
    after_reinplace(
        in_place_call_keeps_its_metadata,
        "rule of update_metadata: metadata shows which tensors share a storage",
    ),
    after_reinplace(new_nodes_have_metadata_of_their_operands, "pytorch/pytorch#120116"),
    fault(
        new_tensors_are_mutated,
        "torch/_inductor/fx_passes/README.md: no mutation but a copy_ epilogue",
        new_tensors_are_mutated,
    ),
    after_noops(
        inputs_are_written_before_the_end,
        "torch/_inductor/fx_passes/README.md: no mutation but a copy_ epilogue",
    ),
)
