"""How compiled graphs take their inputs, and which outputs autograd does not see as views."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx
from torch._ops import OpOverload
from torch.fx.graph import _BoxedCodeGen
from torch.fx.node import map_aggregate

from aliasproof.reference_pass.calls.graphs import copied
from aliasproof.reference_pass.calls.nested import leaves_in
from aliasproof.reference_pass.calls.operator_forms import aten, bind

# --- lists as inputs: graphs of compiled autograd take lists, and any graph can release its list --

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def with_flat_inputs(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any], compiler: Compiler
) -> Callable[..., Any]:
    """Compile a graph module with one input for each element of its lists."""
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
    """Let the graph take its inputs out of a list, so that each is freed after its last use."""
    compiled.graph.set_codegen(_BoxedCodeGen())
    compiled.recompile()
    # Hooks would get that list: the caller checks for which sizes the graph is right.
    compiled._forward_pre_hooks.clear()
    return compiled


# --- outputs --------------------------------------------------------------------------------------
#
# To the caller, a view is more than shared memory: autograd notes its base, and forbids some writes
# to it. In a compiled graph, an output may be a view although the program made a new tensor, since
# its result was written into memory that was dead. And a detached view may be the plain view, since
# both have the same layout. Each is detached at the end: `detach` returns the same memory without a
# base.


def detach_new_outputs(compiled: fx.GraphModule, captured: fx.GraphModule) -> fx.GraphModule:
    """Detach each output that is a view in the compiled graph, but not in the captured graph.

    Changes the compiled graph module and returns it.
    """
    (output,) = compiled.graph.find_nodes(op="output")
    (original,) = captured.graph.find_nodes(op="output")
    detached = {
        node
        for node, before in zip(leaves_in(output.args), leaves_in(original.args), strict=True)
        if _is_tracked_view(node) and not _is_tracked_view(before)
    }
    for node in detached:
        with compiled.graph.inserting_before(output):
            new = compiled.graph.call_function(aten.detach.default, (node,))
        output.replace_input_with(node, new)
    if detached:
        compiled.recompile()
    return compiled


def _is_tracked_view(node: object) -> bool:
    """True if autograd notes a base for the value of a node, and knows the chain of views to it."""
    is_view = False
    picks: list[Any] = []  # by `getitem`, the last one first
    while isinstance(node, fx.Node) and node.op == "call_function":
        op = node.target
        if op is operator.getitem:
            picks.append(node.args[1])
            node = node.args[0]
            continue
        if not isinstance(op, OpOverload) or op is aten.detach.default:
            return False
        returns = op._schema.returns
        returned = returns[picks.pop() if len(returns) > 1 and picks else 0]
        if returned.alias_info is None:
            break  # a new tensor
        # A mutating call returns the tensor that it writes.
        is_view = is_view or not returned.alias_info.is_write
        node = bind(op, node.args, node.kwargs).get(_aliased(op, returned.alias_info))
    return is_view


def _aliased(op: OpOverload, alias_info: Any) -> str:
    """The name of the argument that a result is, or is a view of."""
    named = (
        argument.name
        for argument in op._schema.arguments
        if argument.alias_info is not None
        and argument.alias_info.before_set & alias_info.before_set
    )
    # For a list of views, as of `split`, the schema names no argument. It is the first one.
    return next(named, op._schema.arguments[0].name)
