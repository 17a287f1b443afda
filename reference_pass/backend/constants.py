"""Tensors full of one number, as one element that is expanded.

Dynamo takes `torch._foreach_lerp_(means, gradients, 0.1)` of an optimizer apart, with one tensor of
weights per parameter (`foreach_lerp_inplace` in torch/_dynamo/polyfills):

    differences = _foreach_sub(gradients, means)
    weights = [full_like(difference, 0.1) for difference in differences]
    _foreach_addcmul_(means, weights, differences)

So the graph needs the memory of all parameters once more than eager does. One element per tensor is
enough, since the kernel gives the same bits: its loop over dense tensors takes one operand that
repeats an element (`vectorized_loop` in aten/src/ATen/native/cpu/Loops.h).
"""

from __future__ import annotations

from typing import Any

from torch import fx

from aliasproof.reference_pass.calls.copied_operands import note_strides, noted_strides
from aliasproof.reference_pass.calls.operator_forms import aten, bind


def expand_constants(graph_module: fx.GraphModule) -> None:
    """Expand each `full_like` of a functional graph from one element, if only `addcmul` reads it.

    Leaves the new nodes without metadata.
    """
    is_changed = False
    for node in graph_module.graph.find_nodes(op="call_function", target=aten.full_like.default):
        if not node.users or not all(_takes_one_element(user, node) for user in node.users):
            continue
        value, given = node.meta["val"], bind(aten.full_like.default, node.args, node.kwargs)
        options = {"dtype": value.dtype, "device": value.device}
        with graph_module.graph.inserting_before(node):
            element = graph_module.graph.call_function(
                aten.full.default, ([], given["fill_value"]), options
            )
            expanded = graph_module.graph.call_function(
                aten.expand.default, (element, list(value.shape))
            )
        for user in list(node.users):
            # It has other strides than in eager, and the bits of the call do not depend on them.
            noted = dict(noted_strides(user))
            user.replace_input_with(node, expanded)
            note_strides(user, noted.get)
        graph_module.graph.erase_node(node)
        is_changed = True
    if is_changed:  # recompiling takes as long as a small pass
        graph_module.recompile()


def _takes_one_element(user: fx.Node, constant: fx.Node) -> bool:
    """True if a call has the same bits with one expanded element in place of a constant."""
    if user.target not in (aten.addcmul.default, aten._foreach_addcmul.Scalar):
        return False
    operands: tuple[Any, ...] = user.args[:3]
    items = zip(*operands, strict=True) if isinstance(operands[0], (list, tuple)) else [operands]
    return all(_is_one_loop(item, constant) for item in items if constant in item)


def _is_one_loop(item: tuple[fx.Node, ...], constant: fx.Node) -> bool:
    """True if the kernel runs over all operands in one loop, as over one dimension, on a CPU."""
    if any("val" not in node.meta for node in item):  # one operand repeats an element already
        return False
    values = [node.meta["val"] for node in item]
    if any(value._has_symbolic_sizes_strides for value in values):
        return False
    # A new tensor is dense, and so are others of the same strides.
    is_real = all(value.is_floating_point() for value in values)  # complex products round otherwise
    layouts = {(value.dtype, value.device.type, value.shape, value.stride()) for value in values}
    alike = len(layouts) == 1 and values[0].device.type == "cpu"
    return is_real and alike and item.count(constant) == 1 and item[0] is not constant
