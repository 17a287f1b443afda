"""Copies of graphs that a pass may change, made while a compiler traces."""

from __future__ import annotations

import torch
from torch import fx


def copied(graph: fx.Graph, root: torch.nn.Module | None) -> fx.GraphModule:
    """A copy of a graph and its metadata, with the modules and constants of its root."""
    # No deep copy: it copies constants too, and under a fake mode these would become fake.
    made, nodes = fx.Graph(), dict[fx.Node, fx.Node]()
    returned = made.graph_copy(graph, nodes)
    output = made.output(returned)
    output.meta = dict(graph.output_node().meta)
    return fx.GraphModule(root if root is not None else torch.nn.Module(), made)
