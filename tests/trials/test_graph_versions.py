"""The versions of a graph that a watch keeps."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from aliasproof.trials import graph_versions
from aliasproof.trials.graph_versions import Driver, PassWatch

aten = torch.ops.aten


def draws(graph: fx.Graph) -> None:
    """Add a call for which torch writes `torch.ops.aten.random_.from`, a keyword of Python."""
    [x] = graph.find_nodes(op="placeholder")
    with graph.inserting_after(x):
        graph.call_function(getattr(aten.random_, "from"), (x, 0, 2))


def forgets(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=getattr(aten.random_, "from")):
        graph.erase_node(node)
    for node in graph.find_nodes(op="call_function", target=aten.neg.default):
        node.target = aten.abs.default


def run_passes(graph: fx.Graph) -> None:
    draws(graph)
    forgets(graph)


def test_a_graph_whose_code_python_does_not_read_is_no_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(run_passes, "a part", "graph")
    monkeypatch.setattr(graph_versions, "drivers", lambda: {run_passes.__code__: driver})
    graph = fx.Graph()
    graph.output(graph.call_function(aten.neg.default, (graph.placeholder("x"),)))
    watch = PassWatch()
    with watch.watching():
        run_passes(graph)
    assert [version.name for version in watch.versions[1:]] == ["forgets"]
