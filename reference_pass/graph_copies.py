"""Copies of graph modules."""

from __future__ import annotations

from torch import fx


def copied(graph_module: fx.GraphModule) -> fx.GraphModule:
    """A graph module with a copy of the graph, and the same attributes."""
    graph = fx.Graph()
    output = graph.output(graph.graph_copy(graph_module.graph, {}))
    output.meta = dict(graph_module.graph.output_node().meta)
    return fx.GraphModule(graph_module, graph)
