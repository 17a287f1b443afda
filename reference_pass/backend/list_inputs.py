"""Graphs that take lists: those of compiled autograd."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx
from torch.fx.graph import _BoxedCodeGen
from torch.fx.node import map_aggregate

from aliasproof.reference_pass.calls.graphs import copied

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def with_flat_inputs(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any], compiler: Compiler
) -> Callable[..., Any]:
    """What a compiler makes of a graph module with an input for each element of its lists."""
    flat = copied(graph_module)
    placeholders = flat.graph.find_nodes(op="placeholder")
    for node, given in zip(placeholders, example_inputs, strict=True):
        if isinstance(given, list):
            _split(node, len(given))
    flat.recompile()
    compiled = compiler(flat, _flattened(example_inputs))
    stolen = [index for index, node in enumerate(placeholders) if node.meta.get("steal_arg")]

    def run(*inputs: Any) -> Any:
        given = _flattened(inputs)
        for index in stolen:  # the caller gives up the list, so that its tensors are freed
            inputs[index].clear()
        return compiled(*given)

    return run


def _split(placeholder: fx.Node, count: int) -> None:
    """Replace the placeholder of a list by one for each element."""
    graph = placeholder.graph
    with graph.inserting_before(placeholder):
        elements = [graph.placeholder(f"{placeholder.name}_{index}") for index in range(count)]
    for user in list(placeholder.users):
        if user.target is operator.getitem and isinstance(user.args[1], int):
            element = elements[user.args[1]]
            element.meta = user.meta
            user.replace_all_uses_with(element)
            graph.erase_node(user)
        else:
            user.args, user.kwargs = map_aggregate(
                (user.args, user.kwargs), lambda leaf: elements if leaf is placeholder else leaf
            )
    graph.erase_node(placeholder)


def _flattened(inputs: Sequence[Any]) -> list[Any]:
    return [leaf for each in inputs for leaf in (each if isinstance(each, list) else (each,))]


def taking_a_list(compiled: fx.GraphModule) -> fx.GraphModule:
    """The graph takes its inputs out of a list, so that it can free them after their last use."""
    compiled.graph.set_codegen(_BoxedCodeGen())
    compiled.recompile()
    # Hooks would get that list: the caller checks for which sizes the graph is right.
    compiled._forward_pre_hooks.clear()
    return compiled
