"""Walks over nested values: arguments of a node, results of a call.

Both are trees of lists, tuples, dicts and slices. Their leaves are nodes, tensors and constants.
All functions visit the leaves in order and repeat a leaf that occurs twice.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import map_aggregate


def leaves_in(value: Any) -> list[Any]:
    """All leaves of a value, at any depth."""
    found: list[Any] = []
    _collect(value, found)
    return found


# A plain recursion into one list: this runs for every node of every graph. Generators that delegate
# to each other cost more, and so does one call per leaf.
def _collect(value: Any, found: list[Any]) -> None:
    if isinstance(value, (list, tuple)):
        for item in value:
            if type(item) in _LEAVES:
                found.append(item)
            else:
                _collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, slice):
        for item in (value.start, value.stop, value.step):
            _collect(item, found)
    else:
        found.append(value)


_LEAVES = {fx.Node, FakeTensor, torch.Tensor, int, float, bool, type(None), torch.dtype}


def nodes_in(argument: Any) -> list[fx.Node]:
    """All nodes in an argument, at any depth."""
    return [leaf for leaf in leaves_in(argument) if isinstance(leaf, fx.Node)]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors in a value, at any depth."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in leaves_in(value) if isinstance(leaf, torch.Tensor)]


def on_values(argument: Any, value: Callable[[fx.Node], Any]) -> Any:
    """The argument with each node replaced by its value."""
    return map_aggregate(argument, lambda leaf: value(leaf) if isinstance(leaf, fx.Node) else leaf)


def on_tensors(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """The value with each tensor replaced by the result of the function."""
    return map_aggregate(
        value, lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf
    )


def graphs_called(node: fx.Node) -> dict[str, fx.GraphModule]:
    """The graphs that a control flow call runs, by their names in the module of its graph."""
    owner = node.graph.owning_module
    names = [str(operand.target) for operand in node.all_input_nodes if operand.op == "get_attr"]
    named = {name: operator.attrgetter(name)(owner) for name in names if owner is not None}
    return {name: graph for name, graph in named.items() if isinstance(graph, fx.GraphModule)}
