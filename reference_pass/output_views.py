"""Outputs that autograd must not take for views.

To the caller, a view is more than shared memory: autograd notes its base, and forbids some writes
to it. In a compiled graph, an output may be a view although the program made a new tensor, since
its result was written into memory that is dead otherwise. And a detached view may be the plain
view, since both have the same layout. Each is detached at the end: `detach` hands out the same
memory without a base.
"""

from __future__ import annotations

import operator

from torch import fx
from torch._ops import OpOverload

from reference_pass.nested import leaves_in, nodes_in
from reference_pass.operator_forms import aten, bind, facts


def detach_new_outputs(compiled: fx.GraphModule, captured: fx.GraphModule) -> fx.GraphModule:
    """Detach each output of a graph that is a view only there, and not in the captured graph.

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
    """True if autograd notes a base for the value of a node, and follows its chain to there."""
    is_view = False
    while isinstance(node, fx.Node) and node.op == "call_function":
        if node.target is operator.getitem:
            (node,) = nodes_in(node.args)  # one of the results of a call
            continue
        if not isinstance(node.target, OpOverload) or node.target is aten.detach.default:
            return False
        op = node.target
        given = bind(op, node.args, node.kwargs)
        if facts(op).writes:
            # A mutating call hands back the tensor that it writes.
            node = given[facts(op).writes[0]]
        elif any(returned.alias_info is not None for returned in op._schema.returns):
            node, is_view = given[facts(op).names[0]], True
        else:
            break
    return is_view
