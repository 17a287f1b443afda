"""Facts about a graph of Dynamo: whether it writes, and what a trace of it shows."""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from aliasproof.reference_pass.calls.graphs import copied
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten, writes
from aliasproof.reference_pass.calls.storages import Storages
from aliasproof.reference_pass.capture.trace_modes import unfold_operator
from aliasproof.reference_pass.eager.history import repeats_element


def may_write(graph_module: fx.GraphModule) -> bool:
    """True unless it is known that a graph writes no tensor.

    Dynamo has run its graph on fakes, and each write increases the version of the fake that it
    wrote, except writes of a call on lists. Calls of ATen operators say what they write.
    """
    if any(map(may_write, _children(graph_module).values())):
        return True
    nodes = _calls(graph_module)
    if all(isinstance(node.target, OpOverload) for node in nodes):
        return any(writes(node.target) for node in nodes)
    values = [node.meta.get("example_value", _UNKNOWN) for node in nodes]
    tensors = tensors_in([node.meta.get("example_value") for node in graph_module.graph.nodes])
    if any(value is _UNKNOWN for value in values) or any(map(_writes_a_list, nodes)):
        return True
    return any(tensor._version for tensor in tensors)


def _writes_a_list(node: fx.Node) -> bool:
    """True for a call such as `torch._foreach_add_(tensors, 1)`."""
    name = str(getattr(node.target, "__name__", ""))
    arguments = (*node.args, *node.kwargs.values())
    return name.endswith("_") and any(isinstance(each, (list, tuple)) for each in arguments)


def is_beyond_aot(graph_module: fx.GraphModule) -> bool:
    """True if AOTAutograd compiles a graph of Dynamo wrong, even if it writes nothing."""
    targets = [node.target for node in graph_module.graph.nodes]
    names = [str(getattr(target, "__name__", target)) for target in targets]
    # The gradient of `as_strided` depends on locations.
    return any(name.startswith("as_strided") for name in names) or _returns_otherwise(graph_module)


def _returns_otherwise(graph_module: fx.GraphModule) -> bool:
    """True if AOTAutograd may return another output.

    Its outputs never have the lazy conjugate or negative bit. An output that overlaps itself, as of
    `unfold`, gets its gradient in memory that overlaps itself. One tensor returned twice becomes
    two tensors. Without the values of Dynamo, any call that sets such a bit counts.
    """
    nodes = graph_module.graph.output_node().all_input_nodes
    values = [node.meta.get("example_value", _UNKNOWN) for node in nodes]
    if any(value is _UNKNOWN for value in values):
        targets = {node.target for node in graph_module.graph.nodes}
        return not targets.isdisjoint((aten._conj.default, aten._neg_view.default))
    inputs = graph_module.graph.find_nodes(op="placeholder")
    others = [node.meta.get("example_value") for node in inputs if node not in nodes]
    tensors = tensors_in(values)
    objects = [*tensors, *tensors_in(others)]
    if len(objects) > len({id(tensor) for tensor in objects}):
        return True
    return any(
        x.is_conj() or x.is_neg() or (x.requires_grad and repeats_element(x)) for x in tensors
    )


def writes_plainly(graph_module: fx.GraphModule) -> bool:
    """True if AOTAutograd is known to functionalize a graph of Dynamo correctly.

    Each written tensor has no other view, has the layout of the functional form of the call, and is
    not an input that requires a gradient: the statistics of a batch norm, a counter, the operand of
    `relu(inplace=True)`.
    """
    nodes, calls = graph_module.graph.nodes, _calls(graph_module)
    if any("example_value" not in node.meta or _writes_a_list(node) for node in calls):
        return False  # it is not known what is written
    # A checkpoint would recompute from contents that a later write has changed.
    if is_beyond_aot(graph_module) or any(
        isinstance(node.target, HigherOrderOperator) for node in nodes
    ):
        return False
    tensors = tensors_in([node.meta.get("example_value") for node in nodes])
    if any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)):
        return False  # a batch of `vmap`: it has no storage
    storages = Storages()
    seen: dict[int, set[tuple[object, ...]]] = {}
    written: set[int] = set()
    for node in nodes:
        for tensor in tensors_in(node.meta.get("example_value")):
            geometry = storages.geometry(tensor)
            seen.setdefault(geometry.storage, set()).add(geometry.key)
            if tensor._version:
                written.add(geometry.storage)
                is_graded = node.op == "placeholder" and tensor.requires_grad
                # The result of a dropout may be the operand itself, which fakes do not show.
                name = str(getattr(node.target, "__name__", node.target))
                if (
                    is_graded
                    or name.startswith("dropout")
                    or not _is_contiguous_with_operands(node)
                ):
                    return False
    return all(len(seen[storage]) == 1 for storage in written)


def _is_contiguous_with_operands(node: fx.Node) -> bool:
    """True if a value is contiguous, and so are all operands of its size."""
    nodes = (node, *node.all_input_nodes)
    tensors = tensors_in([each.meta.get("example_value") for each in nodes])
    written = tensors_in(node.meta.get("example_value"))
    return all(x.is_contiguous() or x.shape not in [y.shape for y in written] for x in tensors)


def with_regions_called(graph_module: fx.GraphModule) -> fx.GraphModule:
    """A graph of Dynamo that calls each region directly, and not through an operator around it.

    Such an operator has a graph of its own, which no trace under autograd runs. So AOTAutograd
    would functionalize it.
    """
    children = _children(graph_module)
    if not children or not any(unfold_operator(node.target) for node in graph_module.graph.nodes):
        return graph_module
    called = copied(graph_module)
    for node in called.graph.nodes:
        node.target = unfold_operator(node.target) or node.target
    for name, child in children.items():
        setattr(called, name, with_regions_called(child))
    return called


def _children(graph_module: fx.GraphModule) -> dict[str, fx.GraphModule]:
    """The graphs that operators of a graph call."""
    named = graph_module.named_children()
    return {name: child for name, child in named if isinstance(child, fx.GraphModule)}


def is_traced_whole(graph_module: fx.GraphModule) -> bool:
    """True if a trace shows all that autograd does with a graph of Dynamo.

    It does not show the backward of an `autograd.Function`, of control flow, or of a custom
    operator; nor a hook, nor that a tensor loses its history.
    """
    targets = [node.target for node in graph_module.graph.nodes]
    return _UNSEEN.isdisjoint(targets) and not any(
        (isinstance(target, HigherOrderOperator) and target not in _UNFOLDED)
        or _has_own_backward(target)
        for target in targets
    )


def _has_own_backward(target: object) -> bool:
    """True for an operator of another library with a backward in Python (`register_autograd`).

    A trace shows what its forward does under `no_grad`.
    """
    packet = target.overloadpacket if isinstance(target, OpOverload) else target
    if not isinstance(packet, OpOverloadPacket):
        return False
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return any(
        op.namespace != "aten"
        and torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "Autograd")
        for op in overloads
    )


def _calls(graph_module: fx.GraphModule) -> list[fx.Node]:
    nodes = graph_module.graph.nodes
    return [node for node in nodes if node.op.startswith("call_") and node.target not in _SWITCHES]


_UNKNOWN = object()
_SWITCHES = {torch._C._set_grad_enabled, operator.getitem}
_UNFOLDED = {torch.ops.higher_order.tag_activation_checkpoint}
_UNSEEN = {
    *("register_hook", "register_post_accumulate_grad_hook"),
    *("detach_", torch.Tensor.detach_, torch.detach_, aten.detach_.default),
}
