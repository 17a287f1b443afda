"""Faults that no run on these numbers shows: the graph is right for the sample inputs, and for them alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from faults.fault import Fault, Inputs, Passes, fault
from programs.values import clone_inputs
from reference_pass.operator_forms import aten
from targets.target import Build, Function


def _numbers(graph_module: fx.GraphModule, inputs: Inputs) -> dict[fx.Node, object]:
    """The value of each node of a functional graph on these inputs, as it was when it was computed."""
    found: dict[fx.Node, object] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            value = super().run_node(n)
            found[n] = value.clone() if isinstance(value, torch.Tensor) else value
            return value

    Recorder(graph_module).run(*clone_inputs(inputs))
    return found


def comparisons_are_baked_in(graph_module: fx.GraphModule, inputs: Inputs) -> None:
    """The graph is traced with real tensors, and what a comparison gave there becomes a constant of the graph."""
    for node, value in _numbers(graph_module, inputs).items():
        if node.target in (aten.gt.Scalar, aten.eq.Tensor, aten.logical_not.default):
            name = f"constant_{node.name}"
            graph_module.register_buffer(name, value)  # type: ignore[arg-type]
            with graph_module.graph.inserting_before(node):
                constant = graph_module.graph.get_attr(name)
                copy = graph_module.graph.call_function(aten.clone.default, (constant,))
            node.replace_all_uses_with(copy)
            graph_module.graph.erase_node(node)


def clamps_are_dropped(graph_module: fx.GraphModule, inputs: Inputs) -> None:
    """An op that keeps numbers in a range is dropped where the sample inputs lie in that range already."""
    numbers = _numbers(graph_module, inputs)
    for node in numbers:
        if node.target in (
            aten.relu.default,
            aten.abs.default,
            aten.clamp.default,
            aten.clamp_max.default,
        ):
            operand = node.args[0]
            if torch.equal(numbers[node], numbers[operand]):  # type: ignore[arg-type, index]
                node.target, node.args, node.kwargs = aten.clone.default, (operand,), {}


def zero_times_anything_is_zero(graph_module: fx.GraphModule, inputs: Inputs) -> None:
    """A product with zero becomes zero for floating-point numbers, too, although NaN and infinity times zero are NaN."""
    for node in graph_module.graph.nodes:
        if node.target is aten.mul.Scalar and node.args[1] == 0:
            node.target, node.args = aten.zeros_like.default, node.args[:1]


def writes_that_change_nothing_are_dropped(graph_module: fx.GraphModule, inputs: Inputs) -> None:
    """An input is not written back where the sample input holds the new numbers already."""
    numbers = _numbers(graph_module, inputs)
    for node in numbers:
        if node.target is aten.copy_.default:
            place, source = node.args
            if place.op == "placeholder" and torch.equal(numbers[place], numbers[source]):  # type: ignore[union-attr, arg-type, index]
                graph_module.graph.erase_node(node)


def _on_numbers(wrong: Callable[[fx.GraphModule, Inputs], None], source: str) -> Fault:
    def make(function: Function, inputs: Inputs) -> Build:
        sample = clone_inputs(inputs)
        return Passes(plain=lambda graph_module: wrong(graph_module, sample))(function, inputs)

    return fault(wrong, source, make)


FAULTS: tuple[Fault, ...] = (
    _on_numbers(comparisons_are_baked_in, "pytorch/functorch#1046"),
    _on_numbers(clamps_are_dropped, "rule of all passes: one graph for all numbers"),
    _on_numbers(zero_times_anything_is_zero, "pytorch/pytorch#186281"),
    _on_numbers(
        writes_that_change_nothing_are_dropped, "rule of all passes: one graph for all numbers"
    ),
)
