"""What autograd sees of a trace: which calls it records, and which values have gradients.

A graph of ATen calls does not show `torch.no_grad()`. So a call for which gradients are off gets
detached operands (`detach_operands`), which is equivalent: its results have no history, and its
writes go through `detach`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_proxy_mode,
    track_tensor_tree,
)

from aliasproof.reference_pass.calls.fake_tensors import without_record_of_views
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten, bind, facts, writes
from aliasproof.reference_pass.calls.view_forms import mutates_only_metadata
from aliasproof.reference_pass.eager.history import HAS_GRADIENT

NO_GRAD = "no grad"  # in the `meta` of a node: gradients were off at the call


# Autograd does not see the writes of these, even if gradients are on.
KEEP_HISTORY = {
    aten.logical_and_.default,
    aten.logical_or_.default,
    aten.logical_xor_.default,
    aten.logical_not_.default,
}


class GradientNotes:
    """Notes in the nodes of a trace what autograd does at each call."""

    def __init__(self) -> None:
        self.last: fx.Node | None = None
        self.results: list[tuple[fx.Node, list[torch.Tensor]]] = []

    def note(self, op: OpOverload, result: Any) -> None:
        """Note the nodes of the newest call, and its result."""
        mode = get_proxy_mode()
        if mode is None:
            return
        tracer: Any = mode.tracer
        newest = node = tracer.graph._root.prev
        # Autograd accepts an `out=` only if there is nothing to record.
        is_unseen = not torch.is_grad_enabled() or op in KEEP_HISTORY or bool(facts(op).outs)
        while node is not self.last and node.op == "call_function":
            node.meta[NO_GRAD] = is_unseen
            node = node.prev
        if newest is not self.last and newest.op == "call_function":
            self.last = newest
            # A later write may give a history to a tensor that has none now.
            self.results.append((newest, tensors_in(result)))

    def finish(self, graph: fx.Graph, arguments: list[Any]) -> None:
        """Note which values have gradients, and detach the operands where gradients were off."""
        for node, argument in zip(graph.find_nodes(op="placeholder"), arguments, strict=True):
            node.meta[HAS_GRADIENT] = getattr(argument, "requires_grad", False)
        for node, tensors in self.results:
            node.meta[HAS_GRADIENT] = any(tensor.requires_grad for tensor in tensors)
        _remove_detaches(graph)
        detach_operands(graph)


def _remove_detaches(graph: fx.Graph) -> None:
    """Erase the `detach` that a trace of `torch.zeros` and the like puts after the new tensor."""
    for node in graph.find_nodes(op="call_function", target=aten.detach.default):
        (made,) = node.all_input_nodes
        is_new = isinstance(made.target, OpOverload) and not any(
            returned.alias_info for returned in made.target._schema.returns
        )
        if is_new and len(made.users) == 1 and not made.meta.get(HAS_GRADIENT):
            made.meta[HAS_GRADIENT] = node.meta.get(HAS_GRADIENT)
            node.replace_all_uses_with(made)
            graph.erase_node(node)


def detach_operands(graph: fx.Graph) -> None:
    """Give detached operands to each call for which gradients are off."""
    for node in list(graph.nodes):
        op = node.target
        if not node.meta.get(NO_GRAD) or not isinstance(op, OpOverload):
            continue
        # A change of metadata must reach the tensor object itself. An op may return a size.
        returns = [str(returned.type) for returned in op._schema.returns]
        only_tensors = all("Tensor" in kind for kind in returns)
        if op is aten.detach.default or not only_tensors or mutates_only_metadata(op):
            continue
        # The result of a write is its operand: users of it use the operand.
        if writes(op) and len(returns) == 1 and not facts(op).fresh:
            written = bind(op, node.args, node.kwargs)[facts(op).writes[0]]
            if isinstance(written, fx.Node):
                node.replace_all_uses_with(written)
        for operand in node.all_input_nodes:
            is_tensor = isinstance(operand.meta.get("val"), torch.Tensor)
            if is_tensor and operand.meta.get(HAS_GRADIENT, True):
                with graph.inserting_before(node):
                    detached = graph.call_function(aten.detach.default, (operand,))
                node.replace_input_with(operand, detached)


def saves_for_trace_alone() -> contextlib.AbstractContextManager[None]:
    """A context in which hooks of the caller do not see what autograd saves in a trace."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        return contextlib.nullcontext()  # `torch.func` takes no hooks
    return torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved)


def as_results(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on arguments that are not leaves: autograd forbids a write to a leaf.

    The caller of the graph decides which inputs are leaves; for a write to one, eager raises.
    """

    def called(*args: Any) -> Any:
        return function(*map(_as_result, args))

    return called


def _as_result(argument: Any) -> Any:
    if not isinstance(argument, FakeTensor) or not argument.requires_grad:
        return argument
    mode = get_proxy_mode()
    assert mode is not None
    tracer: Any = mode.tracer
    with disable_proxy_modes_tracing(), without_record_of_views(), torch.enable_grad():
        result = aten.alias.default(argument)
    proxy = tracer.unwrap_proxy(argument)
    return track_tensor_tree(result, proxy, constant=None, tracer=tracer)
