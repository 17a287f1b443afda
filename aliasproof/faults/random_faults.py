"""Faults of random ops: drawn twice, left out, in another order, or merged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.faults.fault import Fault, after_functionalize
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import facts, on_copies


def _random_nodes(graph_module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph_module.graph.nodes if _is_random(node)]


def _is_random(node: fx.Node) -> bool:
    # An op without a functional form is an argument of the function that calls it.
    op = node.args[0] if node.target is on_copies else node.target
    return isinstance(op, OpOverload) and facts(op).random


def random_op_is_drawn_twice(graph_module: fx.GraphModule) -> None:
    """A random op is computed again where it is used, and draws other numbers."""
    for node in _random_nodes(graph_module):
        with graph_module.graph.inserting_after(node):
            again = graph_module.graph.node_copy(node, lambda operand: operand)
        node.replace_all_uses_with(again)


def unused_random_op_is_left_out(graph_module: fx.GraphModule) -> None:
    """A random op whose numbers nobody reads is dead code, so later ops draw these numbers."""
    for node in reversed(_random_nodes(graph_module)):
        if not node.users:
            graph_module.graph.erase_node(node)


def random_ops_are_reordered(graph_module: fx.GraphModule) -> None:
    """Of two random ops that do not depend on each other, the second draws first."""
    for first, second in pairwise(_random_nodes(graph_module)):
        nodes = list(graph_module.graph.nodes)
        before = set(nodes[: nodes.index(first)])
        if before.issuperset(second.all_input_nodes):
            first.prepend(second)


def equal_random_ops_are_merged(graph_module: fx.GraphModule) -> None:
    """Common subexpressions are merged, also random ops on tensors of equal layout."""
    seen: dict[object, fx.Node] = {}
    for node in _random_nodes(graph_module):
        same = seen.setdefault(_call_on_layouts(node), node)
        if same is not node:
            node.replace_all_uses_with(same)
            graph_module.graph.erase_node(node)


def _call_on_layouts(node: fx.Node) -> object:
    plain = [
        argument for argument in (*node.args, *node.kwargs.items()) if not _has_nodes(argument)
    ]
    return str((node.target, plain, _layouts([node.meta["val"]])))


def _has_nodes(argument: object) -> bool:
    return isinstance(argument, fx.Node)


def _layouts(values: Sequence[object]) -> list[tuple[torch.dtype, torch.Size]]:
    return [(tensor.dtype, tensor.shape) for tensor in tensors_in(values)]


FAULTS: tuple[Fault, ...] = (
    after_functionalize(
        random_op_is_drawn_twice, "rule of has_effect: a random op advances the generator"
    ),
    after_functionalize(
        unused_random_op_is_left_out, "rule of has_effect: a random op stays without a use"
    ),
    after_functionalize(
        random_ops_are_reordered,
        "rule of functionalize: random ops draw in the order of the program",
    ),
    after_functionalize(equal_random_ops_are_merged, "rule of all passes: no two draws are equal"),
)
