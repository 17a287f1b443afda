"""Copies of graph modules, and graph modules that passes make."""

from __future__ import annotations

from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import _BoxedCodeGen


def copied(graph_module: fx.GraphModule) -> fx.GraphModule:
    """A graph module with a copy of the graph, and the same attributes."""
    graph = fx.Graph()
    output = graph.output(graph.graph_copy(graph_module.graph, {}))
    output.meta = dict(graph_module.graph.output_node().meta)
    return with_graph(graph_module, graph)


def with_graph(graph_module: fx.GraphModule, graph: fx.Graph) -> fx.GraphModule:
    """A graph module with the attributes of another one, and a new graph.

    Its code is written when it is first called or read. So a module between two passes has none.
    """
    return _LazyGraphModule(graph_module, graph)


def taking_a_list(compiled: fx.GraphModule) -> fx.GraphModule:
    """The graph takes its inputs out of a list, so that it can free them after their last use."""
    compiled.graph.set_codegen(_BoxedCodeGen())
    compiled.recompile()
    # Hooks would get that list: the caller checks for which sizes the graph is right.
    compiled._forward_pre_hooks.clear()
    return compiled
