"""Changes and questions of mends to the graphs of Inductor.

Inductor is imported in the functions: its import takes two seconds, and other bugs do without.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.ir.eager_call import is_foreach

aten = torch.ops.aten


def copy_operand(node: fx.Node, index: int, **kwargs: Any) -> None:
    """Give a call a copy of its operand with this index."""
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    operand: Any = node.args[index]
    with node.graph.inserting_before(node):
        if index == 0 and (scatters_by_strides(node) or _has_gaps(operand.meta["val"])):
            copy = copy_with_storage(operand)
        else:
            copy = reinplace.graph_call_function(node.graph, aten.clone.default, operand, **kwargs)
    node.update_arg(index, copy)


def _has_gaps(value: torch.Tensor) -> bool:
    """Whether a tensor has other strides than its clone, though it does not overlap itself."""
    extent = 1
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size > 1 and stride < extent:
            return False
        extent += (size - 1) * stride
    return extent > max(value.numel(), 1)


def scatters_by_strides(node: fx.Node) -> bool:
    """Whether this is a scatter by `as_strided`, in the form that Inductor gives to scatters."""
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    scatters = (reinplace._generalized_scatter, reinplace._inplace_generalized_scatter)
    views: Any = node.args[2] if node.target in scatters else ()
    return any(view.target is aten.as_strided.default for view in views)


def copy_with_storage(node: fx.Node) -> fx.Node:
    """A copy of a tensor in a copy of its whole storage, so that strides mean the same."""
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    value, graph, call = node.meta["val"], node.graph, reinplace.graph_call_function
    length = value.untyped_storage().nbytes() // value.itemsize
    storage = call(graph, aten.as_strided.default, node, [length], [1], 0)
    copy = call(graph, aten.clone.default, storage)
    layout = (list(value.shape), list(value.stride()), value.storage_offset())
    view: fx.Node = call(graph, aten.as_strided.default, copy, *layout)
    return view


def reinplaceable(graph: fx.Graph) -> Iterator[tuple[Any, int]]:
    """The calls that Inductor may put in place, with the index of the operand to be written."""
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    for node in list(graph.nodes):
        op = reinplace.inplaceable_ops.get(node.target)
        if op is not None:
            yield from ((node, index) for index in op.mutated_args)


def foreach_write_backs(graph: fx.Graph) -> Iterator[tuple[Any, fx.Node]]:
    """The writes of results of `_foreach_` calls, each with the operand that the result is of."""
    for write in graph.find_nodes(op="call_function", target=aten.copy_.default):
        source: Any = write.args[1]
        if isinstance(source, fx.Node) and source.target is operator.getitem:
            call: Any = source.args[0]
            # Another call with several results can begin with a list of sizes.
            if isinstance(call.target, OpOverload) and is_foreach(call.target):
                yield write, call.args[0][source.args[1]]


def write_back(node: fx.Node) -> fx.Node | None:
    """The call that writes an input of the graph, if the node is an input that is written."""
    if node.op != "placeholder":
        return None
    writes = node.graph.find_nodes(op="call_function", target=aten.copy_.default)
    return next((call for call in writes if call.args[0] is node), None)


def hidden_from_noops(node: fx.Node) -> Callable[[], None]:
    """Hide a call from the pass that removes no-ops, until the result is called."""
    target, node.target = node.target, _not_a_noop
    return lambda: setattr(node, "target", target)


def _not_a_noop() -> None:
    raise AssertionError("only hides a node from the pass")
