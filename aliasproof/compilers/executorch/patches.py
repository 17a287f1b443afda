"""Patches of ExecuTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils import _pytree as pytree

from aliasproof.corpus.patching import Patch, replaces_outside

aten = torch.ops.aten


def not_in_place_if(condition: Callable[[Any, Any], bool]) -> Patch:
    """ExecuTorch puts no call in place if the condition holds, of its operand and the call."""

    def is_safe(original: Callable[..., bool], node: Any, call: Any, *rest: Any) -> bool:
        return not condition(node, call) and original(node, call, *rest)

    return replaces_outside("executorch.exir.passes.reinplace:_is_safe_to_reinplace")(is_safe)


@replaces_outside("executorch.exir.program._program:insert_write_back_for_buffers_pass")
def executorch_buffer_copied(original: Callable[..., Any], program: Any) -> Any:
    """If the graph returns an input to be written back, it returns a copy of it.

    ExecuTorch confuses an output that is a buffer with the buffer that it is written to
    (`_inplace_lineage`), and does not write the latter. If only one of two were copied, the other
    one would be read after it was written.
    """
    ops: Any = importlib.import_module("executorch.exir.dialects._ops").ops
    end = program.graph.output_node()
    outputs = list(end.args[0])
    for index, spec in enumerate(program.graph_signature.output_specs):
        node = outputs[index]
        if "MUTATION" in spec.kind.name and node.op == "placeholder":
            with program.graph.inserting_before(end):
                outputs[index] = copy = program.graph.call_function(
                    ops.edge.aten.alias_copy.default, (node,)
                )
            copy.meta["val"] = node.meta["val"]
    end.args = (tuple(outputs),)
    return original(program)


@replaces_outside("executorch.exir.memory_planning:update_all_tensors_lifetime")
def executorch_reinplaced_lifetime(original: Callable[..., Any], module: Any, *rest: Any) -> Any:
    """The written operand is live as long as the result, which is the same memory, is read.

    `collect_specs_from_nodes` skips in-place operators, even when it collects the reads of a node.
    """
    specs = original(module, *rest)
    order = {node: index for index, node in enumerate(module.graph.nodes)}
    for node in filter(_in_place, order):
        written = node.args[0].meta["spec"]
        last = max(order[reader] for reader in _readers(node))
        written.lifetime[1] = max(written.lifetime[1], last)
    return specs


def _in_place(node: Any) -> bool:
    return node.op == "call_function" and "index_put_." in str(node.target)


def _readers(node: Any) -> Iterator[Any]:
    """The node, and the readers and aliases of it."""
    yield node
    for user in node.users:
        yield user
        if _in_place(user) or "view" in str(user.target):
            yield from _readers(user)


@not_in_place_if
def executorch_reinplaced_output(node: Any, call: Any) -> bool:
    """The caller reads outputs. ExecuTorch only counts operands of calls as read later."""
    return any(user.op == "output" for user in node.users)


@not_in_place_if
def executorch_reinplaced_view(node: Any, call: Any) -> bool:
    """A `view_copy` will be a view (`ReplaceViewCopyWithViewPass`): its readers count, too."""
    order = {other: index for index, other in enumerate(node.graph.nodes)}
    readers = (user for alias in _aliases(node) for user in alias.users if alias is not node)
    return any(order[user] >= order[call] for user in readers)


def _aliases(node: Any) -> Iterator[Any]:
    """The nodes that will share the memory of a node."""
    base = node
    while _is_view(base):
        base = base.args[0]
    found = [base]
    for alias in found:
        found += filter(_is_view, alias.users)
        yield alias


def _is_view(node: Any) -> bool:
    return node.op == "call_function" and "view_copy" in str(node.target)


@not_in_place_if
def executorch_reinplaced_values(node: Any, call: Any) -> bool:
    """The kernel reads the other operands while it writes."""
    return sum(operand is node for operand in pytree.tree_leaves((call.args, call.kwargs))) > 1


@not_in_place_if
def executorch_shared_operand(node: Any, call: Any) -> bool:
    """A later call reads the operand.

    If a call shares memory by an annotation, ExecuTorch does not count its operands as read.
    """
    order = {other: index for index, other in enumerate(node.graph.nodes)}
    return any(user.op == "call_function" and order[user] > order[call] for user in node.users)


@replaces_outside(
    "executorch.exir.passes.prune_empty_tensors_pass:"
    "PruneEmptyTensorsPass.remove_empty_tensors_from_cat"
)
def executorch_cat_of_empty(
    original: Callable[..., None], made: Any, graph: Any, call: Any
) -> None:
    """An empty operand counts for the dtype of the result."""
    dtypes = {operand.meta["val"].dtype for operand in call.args[0]}
    if len(dtypes) == 1:
        original(made, graph, call)


@replaces_outside("executorch.exir.memory_planning:Verifier.verify_graph_input_output")
def executorch_no_output(original: Callable[..., None], verifier: Any) -> None:
    """Skip the check of planned outputs for a graph without outputs."""
    if verifier.graph_module.graph.output_node().args[0]:
        original(verifier)


@replaces_outside("executorch.exir.passes.memory_planning_pass:_move_memory_meta_to_spec")
def executorch_shared_written(original: Callable[..., None], node: Any) -> None:
    """Such an operand shares the location of the written tensor, which the plan assigns later."""
    operand = node.meta.get("_share_alloc_with_arg_idx")
    if operand is not None and "index_put_" in str(node.args[operand].target):
        del node.meta["_share_alloc_with_arg_idx"]
    original(node)


@replaces_outside("executorch.exir.passes.remove_noop_pass:RemoveToCopyPass.call")
def executorch_copy_removed(original: Callable[..., Any], made: Any, graph: Any) -> Any:
    """The pass removes no copies."""
    return PassResult(graph, False)
