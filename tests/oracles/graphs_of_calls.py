"""Graphs written as inputs and calls, for the tests of the oracles on graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def graph_of(inputs: str, *calls: tuple[Any, ...], returned: str = "") -> fx.GraphModule:
    """A graph from its inputs and calls: `graph_of("x y", ("sum", aten.add.Tensor, "x", "y"))`.

    A call is (name, target, arguments, ...). An argument that is the name of a value means the
    value. A dict at the end has the keyword arguments.
    """
    graph = fx.Graph()
    nodes: dict[Any, Any] = {}
    for placeholder in inputs.split():
        nodes[placeholder] = graph.placeholder(placeholder)
    for result, target, *args in calls:
        kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
        arguments, named = fx.node.map_aggregate(
            (tuple(args), kwargs), lambda value: nodes.get(value, value)
        )
        op = "call_method" if isinstance(target, str) else "call_function"
        nodes[result] = graph.create_node(op, target, arguments, named, name=result)
    graph.output(tuple(nodes[output] for output in returned.split()))
    return fx.GraphModule(torch.nn.Module(), graph)
