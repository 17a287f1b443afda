"""Which graphs need autograd, and what the forward graph saves for the backward graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import AOTInput, InputMutationAOTOutput
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch._ops import OpOverload
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.checkpoint import CheckpointPolicy

from aliasproof.reference_pass.backend.calls_on_copies import OPAQUE_CALL
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import facts, writes
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.eager.history import LostHistory


def needs_autograd(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """True if AOTAutograd must make the graphs: something requires a gradient, or has wrappers."""
    # Parameters are inputs, or attributes of the graph (`install_free_tensors`, `symbolic_trace`).
    tensors = [*tensors_in(example_inputs), *graph_module.parameters(), *graph_module.buffers()]
    # A part of the graph may be under `enable_grad`, and the caller under `no_grad`.
    switch = torch._C._set_grad_enabled
    switches = graph_module.graph.find_nodes(op="call_function", target=switch)
    grad = torch.is_grad_enabled() or any(node.args == (True,) for node in switches)
    # AOTAutograd also unpacks tensors that consist of others, such as jagged ones.
    return (grad and any(tensor.requires_grad for tensor in tensors)) or has_wrappers(graph_module)


def has_wrappers(graph_module: fx.GraphModule) -> bool:
    """True if AOTAutograd must unpack tensors that consist of others (wrapper subclasses)."""
    values = [node.meta.get("example_value") for node in graph_module.graph.nodes]
    return any(map(is_traceable_wrapper_subclass, tensors_in(values)))


class SavesOverwrittenError(Exception):
    """The backward graph needs the contents of an input before the graph's caller writes it."""


def partition(
    joint: fx.GraphModule, inputs: Any, **options: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward and the backward graph; each random call is in one of them.

    Torch's partitioners put a call that needs no tensor into both graphs, even if only the other
    one uses it. Then a random call would draw twice.
    """
    for call in joint.graph.find_nodes(op="call_function", target=OPAQUE_CALL):
        # A checkpoint would draw other numbers: AOTAutograd keeps no state for this operator.
        for node in (call, *call.users):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    for node in joint.graph.nodes:
        is_dead = _draws(node) and not node.users and node.target is not OPAQUE_CALL
        if is_dead and not isinstance(node.meta["val"], torch.Tensor):
            raise LostHistory(f"torch cannot partition {node.format_node()}, which nothing uses")
    forward, backward = _partitioned(joint, inputs, **options)
    drawn = {node.name: node for node in forward.graph.nodes if _draws(node)}
    for node in list(backward.graph.nodes):
        if _draws(node) and not node.users and node.name in drawn:
            backward.graph.erase_node(node)
        elif _draws(node) and node.name in drawn and not drawn[node.name].users:
            forward.graph.erase_node(drawn[node.name])
    forward.recompile()
    backward.recompile()
    return forward, backward


def _draws(node: fx.Node) -> bool:
    op = node.target
    return op is OPAQUE_CALL or (isinstance(op, OpOverload) and facts(op).random)


def _partitioned(
    joint: fx.GraphModule,
    inputs: Any,
    *,
    num_fwd_outputs: int,
    overwritten: frozenset[AOTInput] = frozenset(),
    **options: Any,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Two graphs that hold no more memory than those of `aot_eager`.

    Its partitioner saves the values that take the least memory, and recomputes the others. If a
    saved value is an input that the program writes, the backward graph would read the new contents.
    Then the forward graph computes all that it can, and saves that. `overwritten` are the inputs
    that are written after the call. Raises `SavesOverwrittenError` if the backward graph needs one.
    """
    options["num_fwd_outputs"] = num_fwd_outputs
    # The names of inputs that the graph writes, or that AOTAutograd writes after its call.
    written = {node.args[0].name for node in joint.graph.nodes if writes(node.target)}
    described = joint.graph.output_node().meta.get("desc", ())
    later = {each.mutated_input for each in described if isinstance(each, InputMutationAOTOutput)}
    given = joint.graph.find_nodes(op="placeholder")
    written |= {node.name for node in given if node.meta.get("desc") in later | overwritten}
    forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
    placeholders = forward.graph.find_nodes(op="placeholder")
    forbidden = _storages([node for node in placeholders if node.name in written])
    if forbidden and _saved(forward, num_fwd_outputs) & forbidden:
        forward, backward = default_partition(joint, inputs, **options)
        if overwritten and _saved(forward, num_fwd_outputs) & forbidden:
            raise SavesOverwrittenError
    return forward, backward


def _saved(forward: fx.GraphModule, num_fwd_outputs: int) -> set[int]:
    """The storages of what a forward graph returns for the backward graph."""
    outputs: Any = forward.graph.output_node().args[0]
    return _storages([node for node in outputs[num_fwd_outputs:] if isinstance(node, fx.Node)])


def donate_nothing() -> None:
    """Tell AOTAutograd that the backward graph does not overwrite saved tensors.

    So it may run again (`retain_graph=True`).
    """
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is not None and metadata.bw_donated_idxs:
        metadata.bw_donated_idxs.clear()  # with subclasses, two objects have this list


def _storages(nodes: list[fx.Node]) -> set[int]:
    values = [node.meta["val"] for node in nodes]
    return {storage_of(tensor) for tensor in tensors_in(values)}
