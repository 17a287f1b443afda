"""Patches of Inductor's passes over graphs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._inductor.fx_passes import reinplace
from torch._inductor.fx_passes.post_grad import noop_registry
from torch._inductor.fx_utils import get_node_storage
from torch._ops import OpOverload
from torch.fx.passes.reinplace import _is_view_op
from torch.utils import _pytree as pytree

from aliasproof.corpus.patching import PASSES, Function, Patch, replaces
from aliasproof.ir.eager_call import is_foreach

aten = torch.ops.aten


def before_reinplacing(change: Callable[[fx.Graph], None]) -> Patch:
    """The function changes each graph before Inductor puts operators in place."""

    def core(original: Callable[[fx.Graph], None], graph: fx.Graph) -> None:
        change(graph)
        original(graph)

    return replaces(f"{PASSES}.reinplace:reinplace_inplaceable_ops_core")(core)


def copy_operand(node: fx.Node, index: int, **kwargs: Any) -> None:
    """Give a call a copy of its operand with this index."""
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
    scatters = (reinplace._generalized_scatter, reinplace._inplace_generalized_scatter)
    views: Any = node.args[2] if node.target in scatters else ()
    return any(view.target is aten.as_strided.default for view in views)


def copy_with_storage(node: fx.Node) -> fx.Node:
    """A copy of a tensor in a copy of its whole storage, so that its layout stays valid."""
    value, graph, call = node.meta["val"], node.graph, reinplace.graph_call_function
    length = value.untyped_storage().nbytes() // value.itemsize
    storage = call(graph, aten.as_strided.default, node, [length], [1], 0)
    copy = call(graph, aten.clone.default, storage)
    layout = (list(value.shape), list(value.stride()), value.storage_offset())
    view: fx.Node = call(graph, aten.as_strided.default, copy, *layout)
    return view


def reinplaceable(graph: fx.Graph) -> Iterator[tuple[Any, int]]:
    """The calls that Inductor may put in place, with the index of the operand to be written."""
    for node in list(graph.nodes):
        op = reinplace.inplaceable_ops.get(node.target)
        if op is not None:
            yield from ((node, index) for index in op.mutated_args)


def foreach_write_backs(graph: fx.Graph) -> Iterator[tuple[Any, fx.Node]]:
    """The writes of results of `_foreach_` calls, each with the operand of the result."""
    for write in graph.find_nodes(op="call_function", target=aten.copy_.default):
        source: Any = write.args[1]
        if isinstance(source, fx.Node) and source.target is operator.getitem:
            call: Any = source.args[0]
            # Another call with several results can begin with a list of sizes.
            if isinstance(call.target, OpOverload) and is_foreach(call.target):
                yield write, call.args[0][source.args[1]]


def write_back(node: fx.Node) -> fx.Node | None:
    """The call that writes an input of the graph; None if the node is no written input."""
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


@replaces(f"{PASSES}.reinplace:_decompose_scatter_mutating")
def as_strided_scatter_of_clone(original: Function, graph: fx.Graph, node: fx.Node) -> Any:
    """The whole storage is cloned, so that the strides and offset of the call stay valid.

    Torch clones the tensor: the clone starts at offset 0, without gaps.
    """
    if node.target is reinplace._generalized_scatter and scatters_by_strides(node):
        copy_operand(node, 0)
        node.target = reinplace._inplace_generalized_scatter
    return original(graph, node)


@replaces(f"{PASSES}.post_grad:remove_noop_ops")
def copy_of_written_input(original: Function, graph: fx.Graph) -> None:
    """A copy of an input that the graph writes is kept.

    The pass treats an op as a no-op if its result equals its operand. It ignores later writes.
    """
    writes = graph.find_nodes(op="call_function", target=aten.copy_.default)
    written_storages = {get_node_storage(call.args[0]) for call in writes}
    restores = []
    for node in graph.nodes:
        # `cat` has a function in place of an index, but no `cat` has one operand at this point.
        _, index = noop_registry.get(node.target, (None, None))
        source = node.args[index] if isinstance(index, int) else None
        storage = get_node_storage(source) if isinstance(source, fx.Node) else None
        if storage in written_storages and storage != get_node_storage(node):
            restores.append(hidden_from_noops(node))
    original(graph)
    for restore in restores:
        restore()


@replaces(f"{PASSES}.joint_graph:UniformValueConstantFolder._deduce_value")
def folded_numbers(original: Function, folder: Any, node: fx.Node) -> Any:
    """Each folded value has the dtype that the graph notes for it.

    Torch folds each constant as a tensor of size [1], which promotes the dtype of others. A tensor
    without dimensions does not.
    """
    folded, noted = original(folder, node), node.meta.get("val")
    if isinstance(folded, torch.Tensor) and isinstance(noted, torch.Tensor):
        return folded.to(noted.dtype)
    return folded


@replaces(f"{PASSES}.joint_graph:UniformValueConstantFolder._deduce_value")
def written_buffer_folded(original: Function, folder: Any, node: fx.Node) -> Any:
    """An attribute that the graph writes is no constant, even if it has one element."""
    writes = (user.target is torch.ops.aten.copy_.default for user in node.users)
    if node.op == "get_attr" and any(writes):
        return folder.unknown_value
    return original(folder, node)


@before_reinplacing
def foreach_results(graph: fx.Graph) -> None:
    """A result that is written to another operand is copied first, which hides it from the pass.

    Torch checks whether each operand gets some result of the call, not whether it gets its own.
    """
    for write, item in foreach_write_backs(graph):
        if item is not write.args[0]:
            copy_operand(write, 1)


@before_reinplacing
def foreach_reads_other(graph: fx.Graph) -> None:
    """A result is copied first if the call reads its operand for another result, too.

    Torch checks for later readers of the operands, but not for reads of the call itself: an
    in-place kernel computes one result after the other.
    """
    for write, operand in list(foreach_write_backs(graph)):
        call = write.args[1].args[0]
        readers = [it for it in call.args if isinstance(it, (list, tuple))]
        if sum(operand in places for places in zip(*readers, strict=True)) > 1:
            copy_operand(write, 1)


_ARITHMETIC = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)


@replaces(f"{PASSES}.joint_graph:remove_no_ops")
def identity_arithmetic(original: Function, module: fx.GraphModule, zeros: Any, ones: Any) -> None:
    """The pass replaces `x + 0` by a copy of x. Another pass removes copies, and checks aliases.

    Torch only checks whether x is written directly, not whether it is returned, or written through
    another view.
    """
    neutral = {*zeros, *ones}
    for node in module.graph.nodes:
        if node.target in _ARITHMETIC and any(operand in neutral for operand in node.args):
            for index, operand in enumerate(node.args):
                if isinstance(operand, fx.Node) and operand not in neutral:
                    with node.graph.inserting_before(node):
                        copy = node.graph.call_function(aten.clone.default, (operand,))
                    copy.meta["val"] = operand.meta["val"].clone()
                    node.update_arg(index, copy)
    original(module, zeros, ones)


@replaces(f"{PASSES}.joint_graph:remove_no_ops")
def negative_zero(original: Function, module: fx.GraphModule, zeros: Any, ones: Any) -> None:
    """Only an integer 0 in sums of integers is neutral for the pass."""
    integers = {node for node in zeros if not any(map(_has_signed_zeros, (node, *node.users)))}
    original(module, integers, ones)


def _has_signed_zeros(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex()


@before_reinplacing
def reinplaced_overlap(graph: fx.Graph) -> None:
    """A tensor that overlaps itself is copied, as the functional operator does.

    Torch 2.14 does not put such calls in place (pytorch/pytorch#184488).
    """
    for node, index in reinplaceable(graph):
        value = node.args[index].meta.get("val")
        if isinstance(value, torch.Tensor) and torch._debug_has_internal_overlap(value) == 1:
            copy_operand(node, index, memory_format=torch.contiguous_format)


@before_reinplacing
def reinplaced_result_outlives(graph: fx.Graph) -> None:
    """A result that is read at or after the write to the input is not put into that input.

    Torch only checks whether the *input* is read before it is written. After that, the input has
    the result, or the result of a later call that is put in place of this one.
    """
    for node, index in reinplaceable(graph):
        if _outlives(node, write_back(_origin(node.args[index]))):
            copy_operand(node, index)
    for call, result, index in _custom_results(graph):
        bases = list(call.kwargs["_all_bases"])
        if _outlives(result, write_back(_origin(bases[index]))):
            with graph.inserting_before(call):
                bases[index] = copy_with_storage(bases[index])
            call.update_kwarg("_all_bases", bases)
    for write, item in foreach_write_backs(graph):
        if item is write.args[0] and _outlives(write.args[1], write):
            copy_operand(write, 1)


def _outlives(result: fx.Node, write: fx.Node | None) -> bool:
    """Whether a result, or a view of it, is read at or after the write into its memory."""
    if write is None:
        return False
    later = any(use > write for use in _uses(result))
    return later or (write in result.users and write.args[1] is not result)


def _origin(node: fx.Node) -> fx.Node:
    """The tensor that receives the results of a chain of calls, if all of them are in place."""
    operands = {call: call.args[index] for call, index in reinplaceable(node.graph)}
    for call, result, index in _custom_results(node.graph):
        operands[result] = call.kwargs["_all_bases"][index]
    while node in operands:
        node = operands[node]
    return node


def _custom_results(graph: fx.Graph) -> Iterator[tuple[Any, fx.Node, int]]:
    """Calls of custom operators, with their results, and the index of the base that gets each."""
    op = torch.ops.higher_order.auto_functionalized_v2
    for call in graph.find_nodes(op="call_function", target=op):
        if not isinstance(call.args[0], torch._ops.OpOverload):
            continue
        # The written bases come after the operator's own results, or after None.
        first = max(1, len(call.args[0]._schema.returns))
        for result in call.users:
            if result.target is operator.getitem and result.args[1] >= first:
                yield call, result, result.args[1] - first


def _uses(node: fx.Node) -> Iterator[fx.Node]:
    """The users of a tensor and of its views."""
    for use in node.users:
        yield use
        if _is_view_op(use.target):
            yield from _uses(use)


@replaces(f"{PASSES}.joint_graph:UniformValueConstantFolder._add_peephole_patterns")
def zero_times_input(original: Function, folder: Any) -> None:
    """The rule applies only to integers, as in torch 2.15 (pytorch/pytorch#187580)."""
    original(folder)
    for node in list(folder.node_replacements):
        dtype = node.meta["val"].dtype
        if dtype.is_floating_point or dtype.is_complex:
            del folder.node_replacements[node]


@replaces(f"{PASSES}.joint_graph:remove_redundant_views")
def erased_input(original: Function, module: fx.GraphModule) -> None:
    """Inputs are kept, as in torch 2.15.

    The pass erases unused views of another dtype, and also their operands.
    """
    graph = module.graph
    with graph.inserting_before(next(iter(graph.find_nodes(op="output")))):
        uses = [
            graph.call_function(aten.alias.default, (node,))
            for node in graph.find_nodes(op="placeholder")
        ]
    original(module)
    for use in uses:
        graph.erase_node(use)


@replaces(f"{PASSES}.reinplace:canonicalize_view_scatter_ops")
def fused_scatters(original: Function, graph: fx.Graph) -> None:
    """Scatters whose inner result has another use are not fused.

    The pass turns that result into a view of the fused one, although both can be returned.
    """
    for node in graph.nodes:
        if node.target in reinplace._SCATTER_OP_TO_VIEW:
            inner = node.args[1]
            if inner.target in reinplace._SCATTER_OP_TO_VIEW and len(inner.users) > 1:
                copy_operand(node, 1)
    original(graph)


@before_reinplacing
def inductor_operands(graph: fx.Graph) -> None:
    """Operands that share memory with a tensor that a call would write are copied first.

    Torch 2.15 does not put such calls in place.
    """
    for node, index in reinplaceable(graph):
        storage = get_node_storage(node.args[index])
        for place, argument in enumerate(node.args):
            if place != index and any(
                isinstance(operand, fx.Node) and get_node_storage(operand) == storage
                for operand in pytree.tree_leaves(argument)
            ):
                node.update_arg(place, fx.map_arg(argument, partial(_copy_operand, before=node)))


def _copy_operand(operand: fx.Node, *, before: fx.Node) -> fx.Node:
    with before.graph.inserting_before(before):
        copy: fx.Node = reinplace.graph_call_function(before.graph, aten.clone.default, operand)
    return copy


@replaces(f"{PASSES}.post_grad:remove_noop_ops")
def collapsed_copies(original: Function, graph: fx.Graph) -> None:
    """The pass runs once for each copy, so that it knows the outputs after each removal.

    Torch collects the returned storages before it removes anything. After the first copy is
    removed, the tensor itself is returned.
    """
    restores = [
        hidden_from_noops(node)
        for node in graph.nodes
        if node.target in noop_registry and any(use.op == "output" for use in node.users)
    ]
    original(graph)
    for restore in restores:
        restore()
        original(graph)


@replaces(f"{PASSES}.post_grad:same_meta")
def clone_of_other_offset(original: Callable[..., bool], one: fx.Node, other: fx.Node) -> bool:
    """A call whose result has another offset than its operand is no no-op.

    Torch compares sizes and strides. The decomposition of a custom operator that writes was traced
    with the offset of the clone, and then counts from the start of the operand's storage.
    """
    if not original(one, other):
        return False
    return bool(one.meta["val"].storage_offset() == other.meta["val"].storage_offset())
