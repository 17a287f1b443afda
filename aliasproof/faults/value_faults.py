"""Faults that no run on the sample inputs shows: the graph is right for these inputs only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from aliasproof.faults.fault import Fault, Inputs, Passes, after_noops, fault
from aliasproof.ir.values import clone_inputs
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import pipeline
from aliasproof.targets.target import Build, Function


def _sample_values(graph_module: fx.GraphModule, inputs: Inputs) -> dict[fx.Node, object]:
    """The value of each node on these inputs, at the moment when it was computed."""
    values: dict[fx.Node, object] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            value = super().run_node(n)
            values[n] = value.clone() if isinstance(value, torch.Tensor) else value
            return value

    Recorder(graph_module).run(*clone_inputs(inputs))
    return values


def comparisons_are_baked_in(graph_module: fx.GraphModule, inputs: Inputs) -> None:
    """The graph is traced with real tensors, and the result of a comparison becomes a constant."""
    for node, value in _sample_values(graph_module, inputs).items():
        if node.target in (aten.gt.Scalar, aten.eq.Tensor, aten.logical_not.default):
            name = f"constant_{node.name}"
            graph_module.register_buffer(name, value)  # type: ignore[arg-type]
            with graph_module.graph.inserting_before(node):
                constant = graph_module.graph.get_attr(name)
                # Eager returns a new tensor, and later passes may overwrite it.
                copy = graph_module.graph.call_function(aten.clone.default, (constant,))
            node.replace_all_uses_with(copy)
            graph_module.graph.erase_node(node)


def clamps_are_dropped(graph_module: fx.GraphModule, inputs: Inputs) -> None:
    """A clamp, relu or abs is dropped if it changes no element for the sample inputs."""
    values = _sample_values(graph_module, inputs)
    for node in values:
        if node.target in (
            aten.relu.default,
            aten.abs.default,
            aten.clamp.default,
            aten.clamp_max.default,
        ):
            operand = node.args[0]
            if torch.equal(values[node], values[operand]):  # type: ignore[arg-type, index]
                node.target, node.args, node.kwargs = aten.clone.default, (operand,), {}


def zero_times_anything_is_zero(graph_module: fx.GraphModule, inputs: Inputs) -> None:
    """A floating-point product with zero becomes zero, although NaN * 0 and inf * 0 are NaN."""
    for node in graph_module.graph.nodes:
        if node.target is aten.mul.Scalar and node.args[1] == 0:
            node.target, node.args = aten.zeros_like.default, node.args[:1]


def writes_that_change_nothing_are_dropped(graph_module: fx.GraphModule, inputs: Inputs) -> None:
    """An input is not written back if the sample input is equal to the new contents."""
    values = _sample_values(graph_module, inputs)
    for node in values:
        if node.target is aten.copy_.default:
            destination, source = node.args
            assert isinstance(destination, fx.Node)
            assert isinstance(source, fx.Node)
            old, new = values[destination], values[source]
            assert isinstance(old, torch.Tensor)
            assert isinstance(new, torch.Tensor)
            if destination.op == "placeholder" and torch.equal(old, new):
                graph_module.graph.erase_node(node)


def new_contents_are_a_sum(graph_module: fx.GraphModule) -> None:
    """New contents are written as old + (new - old), which is NaN or 0 for special values alone."""
    for node in graph_module.graph.nodes:
        if node.target is not aten.copy_.default:
            continue
        old, new = node.args[:2]
        value = new.meta["val"]
        if not value.is_floating_point() or value.shape != old.meta["val"].shape:
            continue
        with graph_module.graph.inserting_before(node):
            difference = graph_module.graph.call_function(aten.sub.Tensor, (new, old))
            total = graph_module.graph.call_function(aten.add.Tensor, (old, difference))
        node.args = (old, total, *node.args[2:])


def adding_zero_is_dropped(graph_module: fx.GraphModule) -> None:
    """A sum with zero becomes a copy, although -0.0 + 0 is 0.0."""
    for node in graph_module.graph.nodes:
        if node.target is aten.add.Scalar and node.args[1] == 0:
            node.target, node.args, node.kwargs = aten.clone.default, node.args[:1], {}


def guards_are_not_checked(function: Function, inputs: Inputs) -> Build:
    """A graph with symbolic sizes runs on inputs of other sizes, and nobody checks its guards."""
    others = [tensor.new_ones([size + 1 for size in tensor.shape]) for tensor in inputs]
    try:
        graph_module = pipeline(function, *others, sizes="symbolic")
    except (Refused, RuntimeError):  # the program is not for these sizes
        return Passes()(function, inputs)
    graph_module._forward_pre_hooks.clear()
    return Build(graph_module, [])


def _on_sample_inputs(wrong: Callable[[fx.GraphModule, Inputs], None], source: str) -> Fault:
    def make(function: Function, inputs: Inputs) -> Build:
        sample = clone_inputs(inputs)
        return Passes(plain=lambda graph_module: wrong(graph_module, sample))(function, inputs)

    return fault(wrong, source, make)


FAULTS: tuple[Fault, ...] = (
    _on_sample_inputs(comparisons_are_baked_in, "pytorch/functorch#1046"),
    _on_sample_inputs(
        clamps_are_dropped, "rule of all passes: one graph for all values of the inputs"
    ),
    _on_sample_inputs(zero_times_anything_is_zero, "pytorch/pytorch#186281"),
    _on_sample_inputs(
        writes_that_change_nothing_are_dropped,
        "rule of all passes: one graph for all values of the inputs",
    ),
    fault(
        guards_are_not_checked,
        "rule of size_guards: a graph is right for inputs that meet its guards",
        guards_are_not_checked,
    ),
    after_noops(new_contents_are_a_sum, "pytorch/pytorch#114302"),
    after_noops(adding_zero_is_dropped, "rule of IEEE 754: a sum of zeros of both signs is 0.0"),
)
