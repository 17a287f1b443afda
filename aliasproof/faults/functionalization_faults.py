"""Faults of functionalization, from alias analysis to outputs, custom operators and random ops."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.faults.fault import (
    Fault,
    Faults,
    Inputs,
    Passes,
    after_functionalize,
    after_noops,
    by_rule,
    by_table,
    from_build,
    input_storages,
    instead_of,
    instead_of_entries,
)
from aliasproof.ir.eager_call import is_foreach
from aliasproof.ir.values import clone_inputs
from aliasproof.reference_pass import views
from aliasproof.reference_pass.alias_analysis import Effect
from aliasproof.reference_pass.bases import StorageUses
from aliasproof.reference_pass.calls import operand_reads
from aliasproof.reference_pass.calls.copied_operands import Layout, on_copies
from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operand_reads import contents_read
from aliasproof.reference_pass.calls.operator_forms import SCATTERS, aten, bind, facts, is_opaque
from aliasproof.reference_pass.calls.regions import Region, Size, contiguous_strides, is_dense
from aliasproof.reference_pass.calls.storages import Geometry, operand_storages, storage_of
from aliasproof.reference_pass.calls.view_forms import SPLITS, Arguments, ViewCall, ViewStep
from aliasproof.reference_pass.eager.opaque_calls import layouts_in_eager
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.epilogue import _Epilogue
from aliasproof.reference_pass.functionalize import _mutate_metadata
from aliasproof.reference_pass.liveness import NOTES, Liveness, Memory
from aliasproof.reference_pass.views import VIEW_STEPS, ParentValue
from aliasproof.targets.target import Build, Function

FAULTS = Faults()
plant = FAULTS.add

# --- alias analysis and liveness: which bytes a tensor covers, and which nodes read them ----------


@plant(instead_of, "end", "end of reference_pass/calls/regions.py", Region)
def last_element_is_not_counted(self: Region) -> int:
    """A region ends where its last element starts, so an overlap in that element is missed."""
    return int(self.start + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True)))


@plant(instead_of, "contains", "contains of reference_pass/calls/regions.py", "liveness")
def gaps_count_as_contents(outer: Region, inner: Region) -> bool:
    """A region with gaps counts as if it contained every byte from its first to its last."""
    return inner.empty or bool(outer.start <= inner.start and inner.end <= outer.end)


@plant(instead_of, "memory", "pytorch/pytorch#122457", Liveness)
def each_view_has_its_own_liveness(self: Liveness, tensor: torch.Tensor) -> Memory:
    """Liveness is kept per tensor, not per storage, so a read through another view is missed."""
    return self.memories.setdefault(id(tensor), Memory())


@plant(instead_of, "contents_read", "rule of liveness: operands in lists are read, too", "liveness")
def list_operands_are_not_read(node: fx.Node) -> Iterator[tuple[fx.Node, bool, bool]]:
    """Operands inside a list, such as those of cat, do not count as reads."""
    # Outputs are a list, too, but `outputs_are_not_read` is another fault.
    direct = (*node.args, *node.kwargs.values())
    yield from (read for read in _contents_read(node) if read[0] in direct)


@plant(instead_of_entries, NOTES, "pytorch/pytorch#198094", "output")
def outputs_are_not_read(liveness: Liveness, node: fx.Node) -> None:
    """Returning a tensor does not count as a read by the caller."""
    liveness.returned.update(nodes_in(node.args))  # the read at the end is left out


@plant(instead_of, "later_reads", "rule of liveness: a read may be at the next position", Liveness)
def next_read_is_missed(
    self: Liveness, tensor: torch.Tensor, region: Region, after: int
) -> Iterator[Any]:
    """Off by one: a read by the very next node is missed."""
    yield from _later_reads(self, tensor, region, after + 1)


_later_reads, _contents_read = Liveness.later_reads, contents_read


# --- views: regenerated from the wrong base, or written through a wrong inverse -------------------


def _in_views(wrong: Callable[..., Any], table: str, names: str, *ops: OpOverload) -> Fault:
    return by_table(wrong, table, f"{table.upper()} of reference_pass/views.py: {names}", *ops)


# Inverses. ----------------------------------------------------------------------------------------


@plant(_in_views, "inverses", "t, transpose", aten.t.default, aten.transpose.int)
def transpose_is_not_undone(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of a transpose is left out where the sizes fit without it."""
    fits = new.meta["val"].shape == parent().meta["val"].shape
    return new if fits else _of_transpose(emit, parent, new, args)


@plant(_in_views, "inverses", "slice", aten.slice.Tensor)
def slice_loses_its_start(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """A write through a slice goes to the start of its base."""
    dim, _, _, step = args
    length = new.meta["val"].shape[dim]
    return emit.call(
        aten.slice_scatter.default,
        parent(),
        new,
        dim,
        0,
        (length - 1) * step + 1 if length else 0,
        step,
    )


@plant(_in_views, "inverses", "select", aten.select.int)
def negative_index_is_clamped(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of select clamps a negative index to zero."""
    dim, index = args
    return emit.call(aten.select_scatter.default, parent(), new, dim, max(index, 0))


@plant(_in_views, "inverses", "diagonal", aten.diagonal.default)
def diagonal_is_mirrored(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of diagonal swaps the two dimensions, so its offset changes direction."""
    offset, dim1, dim2 = args
    sizes = parent().meta["val"].shape
    # In a base that is not square, the result would have another size.
    dims = (dim2, dim1) if sizes[dim1] == sizes[dim2] else (dim1, dim2)
    return emit.call(aten.diagonal_scatter.default, parent(), new, offset, *dims)


@plant(by_table, "inverses", "pytorch/pytorch#198102", aten.unfold.default)
def gaps_of_unfold_are_zeroed(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of unfold starts from zeros, so the gaps between the windows become zero."""
    return _of_unfold(emit, lambda: emit.call(aten.zeros_like.default, parent()), new, args)


@plant(by_table, "inverses", "pytorch/pytorch#197448", aten.expand.default)
def expand_is_summed(emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments) -> fx.Node:
    """The inverse of expand sums the copies of an element, as the backward formula does."""
    shape = parent().meta["val"].shape
    # `before` dimensions were added in front; others were expanded from size one.
    dtype, before = new.meta["val"].dtype, new.meta["val"].dim() - len(shape)
    shown = new.meta["val"].shape[before:]
    added = [before + dim for dim, size in enumerate(shape) if size == 1 and shown[dim] != 1]
    if added:
        new = emit.call(aten.sum.dim_IntList, new, added, True, dtype=dtype)
    return (
        emit.call(aten.sum.dim_IntList, new, list(range(before)), False, dtype=dtype)
        if before
        else new
    )


@plant(_in_views, "inverses", "view.dtype", aten.view.dtype)
def bytes_are_converted(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of view(dtype) converts the elements instead of reinterpreting their bytes."""
    whole, written = parent().meta["val"], new.meta["val"]
    # The bytes of a bool are 0 or 1, so a conversion from or to bool gives the right bytes.
    same_bytes = torch.bool in (whole.dtype, written.dtype)
    if same_bytes or whole.dtype.itemsize != written.dtype.itemsize:
        return _of_view_dtype(emit, parent, new, args)
    return emit.call(aten._to_copy.default, new, dtype=whole.dtype)


_of_transpose = views.INVERSES[aten.transpose.int]
_of_unfold, _of_view_dtype = views._of_unfold, views._of_view_dtype


# Steps. -------------------------------------------------------------------------------------------


@plant(_in_views, "view_steps", "split", *SPLITS)
def last_piece_starts_too_early(call: ViewCall) -> list[ViewStep]:
    """A split piece starts at its index times its own size, also the smaller last piece."""
    dim = call.given.get("dim", 0)
    size = call.sizes[dim]
    return [(aten.slice.Tensor, (dim, call.index * size, (call.index + 1) * size, 1))]


@plant(_in_views, "view_steps", "imag", aten.imag.default)
def imag_is_real(call: ViewCall) -> list[ViewStep] | None:
    """A view of the imaginary part is regenerated as a view of the real part."""
    return VIEW_STEPS[aten.real.default](replace(call, op=aten.real.default))


@plant(_in_views, "inverses", "_conj", aten._conj.default)
def write_is_not_conjugated(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """A write through a view with the lazy conjugate bit stores what the view shows."""
    return new


@plant(_in_views, "view_steps", "_conj", aten._conj.default)
def conjugate_bit_is_lost(call: ViewCall) -> list[ViewStep]:
    """A view with the lazy conjugate bit is regenerated without it."""
    return [(aten.alias.default, ())]


@plant(_in_views, "view_steps", "_neg_view", aten._neg_view.default)
def negative_bit_is_lost(call: ViewCall) -> list[ViewStep]:
    """A view with the lazy negative bit is regenerated without it."""
    return [(aten.alias.default, ())]


@plant(by_table, "view_steps", "pytorch/pytorch#104505", aten.as_strided.default)
def as_strided_is_a_step(call: ViewCall) -> list[ViewStep]:
    """as_strided is applied to the view before it, not to the base that has the whole storage."""
    given = call.given
    return [(call.op, (given["size"], given["stride"], given.get("storage_offset") or 0))]


# Bases. -------------------------------------------------------------------------------------------


@plant(by_rule, "is_current", "pytorch/pytorch#127821")
def view_is_not_regenerated(noted: int, version: int) -> bool:
    """A view that was read before is not regenerated after a write to its base."""
    return True


@plant(by_rule, "is_base", "pytorch/pytorch#120585")
def tensor_is_always_the_base(uses: StorageUses, geometry: Geometry) -> bool:
    """A tensor becomes the base of its storage although other views show other bytes of it."""
    return True


@plant(
    by_rule,
    "as_strided_offset",
    "rule of alias analysis: offsets are in elements of the dtype of the view",
)
def offset_in_elements_of_the_base(geometry: Geometry, start: torch.dtype) -> Size:
    """The offset of a view of another dtype is counted in elements of the base, not of the view."""
    return geometry.offset * geometry.dtype.itemsize // start.itemsize


@plant(by_rule, "base_strides", "pytorch/pytorch#133512")
def base_has_another_layout(geometry: Geometry | None, value: torch.Tensor) -> Sequence[Size]:
    """A new value of a base does not get the strides that the base has in eager."""
    return value.stride()


# --- writes: which values are written, and in which order -----------------------------------------


@plant(after_functionalize, "rule of functionalize: all queued writes are applied")
def first_of_two_scatters_is_dropped(graph_module: fx.GraphModule) -> None:
    """The first of two nested scatters counts as dead, whatever bytes the second overwrites."""
    for node in list(graph_module.graph.nodes):
        base = node.args[0] if node.target in SCATTERS else None
        if isinstance(base, fx.Node) and base.target is node.target and len(base.users) == 1:
            node.update_arg(0, base.args[0])


@plant(after_functionalize, "rule of functionalize: queued writes are applied oldest first")
def two_scatters_are_exchanged(graph_module: fx.GraphModule) -> None:
    """The second of two nested scatters is done first, as if the two could not overlap."""
    for node in list(graph_module.graph.nodes):
        base = node.args[0] if node.target in SCATTERS else None
        if (
            not isinstance(base, fx.Node)
            or base.target not in SCATTERS
            or set(base.users) != {node}
            or node.args[1] is base
        ):
            continue
        # base(a, ...) then node(base, ...) becomes node(a, ...) then base(node, ...).
        node.update_arg(0, base.args[0])
        users = [user for user in node.users if user is not base]
        node.append(base)
        for user in users:
            user.replace_input_with(node, base)
        base.update_arg(0, node)
        return


@plant(by_rule, "must_apply", "rule of functionalize: a read first applies the queued writes")
def reads_ignore_queued_writes(queued: int, value: fx.Node | None) -> bool:
    """A view is read without the queued writes through other views of its storage."""
    return value is None


@plant(
    instead_of,
    "overwrites",
    "overwrites of reference_pass/calls/operand_reads.py",
    "calls.operand_reads",
)
def masked_write_counts_as_overwrite(op: OpOverload) -> bool:
    """A write through a mask or an index counts as an overwrite of all elements of its operand."""
    return op in _PARTIAL or _overwrites(op)


@plant(after_functionalize, "pytorch/pytorch#77125")
def casts_are_left_out(graph_module: fx.GraphModule) -> None:
    """A result is written without the cast to the dtype of the mutated tensor."""
    for node in list(graph_module.graph.nodes):
        if node.target is aten._to_copy.default:
            node.replace_all_uses_with(node.args[0])


_overwrites = operand_reads.overwrites
_PARTIAL = {
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.index_fill.int_Scalar,
    aten.index_copy.default,
    aten.index_put.default,
    aten.scatter.src,
    aten.scatter.value,
}


# --- metadata mutation (`t_`, `set_`, `resize_`) and of ops that write many tensors ---------------


@plant(
    instead_of,
    "_mutate_metadata",
    "rule of functionalize: a tensor object becomes another view",
    "functionalize",
)
def metadata_of_results_is_not_mutated(
    env: Environment, node: fx.Node, effect: Effect, identity: int, geometry: Geometry
) -> None:
    """`t_` on a tensor that the program made leaves its metadata as they were."""
    if identity in env.inputs:
        _mutate_metadata(env, node, effect, identity, geometry)


def _at_the_end(wrong: Callable[..., Any]) -> Fault:
    source = "step 3 of reference_pass/epilogue.py: metadata is mutated"
    return instead_of(wrong, "mutate_metadata", source, _Epilogue)


@plant(_at_the_end)
def metadata_of_inputs_is_not_mutated(
    self: _Epilogue, mutated: Sequence[int], final: dict[int, fx.Node]
) -> None:
    """After `t_` on an input, the caller's tensor keeps its metadata."""
    _mutate_at_end(
        self, [identity for identity in mutated if not _keeps_storage(self, identity)], final
    )


@plant(_at_the_end)
def storage_of_inputs_is_not_replaced(
    self: _Epilogue, mutated: Sequence[int], final: dict[int, fx.Node]
) -> None:
    """After `set_` on an input, the caller's tensor keeps its storage."""
    _mutate_at_end(
        self, [identity for identity in mutated if _keeps_storage(self, identity)], final
    )


def _keeps_storage(epilogue: _Epilogue, identity: int) -> bool:
    env = epilogue.env
    return env.views[identity].storage is env.at_start[identity].storage


@plant(after_functionalize, "rule of functionalize: each result of a call is written to its tensor")
def only_first_tensor_of_foreach_is_written(graph_module: fx.GraphModule) -> None:
    """Of the results of a `_foreach_` op, only the first replaces what it was computed from."""
    for node in graph_module.graph.nodes:
        if node.target is operator.getitem and node.args[1] > 0:
            call = node.args[0]
            if isinstance(call.target, OpOverload) and is_foreach(call.target):
                node.replace_all_uses_with(call.args[0][node.args[1]])


_mutate_at_end = _Epilogue.mutate_metadata


# --- the epilogue: the final contents of the inputs -----------------------------------------------


def _copies(graph_module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph_module.graph.nodes if node.target is aten.copy_.default]


@plant(after_functionalize, "pytorch/pytorch#68301")
def epilogue_is_dead_code(graph_module: fx.GraphModule) -> None:
    """Dead code elimination looks at users only, and the copy_ calls of the epilogue have none."""
    for copy in _copies(graph_module):
        graph_module.graph.erase_node(copy)


@plant(after_functionalize, "rule of functionalize: a copy_ into each mutated input")
def one_input_is_written_back(graph_module: fx.GraphModule) -> None:
    """Of several mutated inputs, only the first gets its new contents."""
    for copy in _copies(graph_module)[1:]:
        graph_module.graph.erase_node(copy)


@plant(after_functionalize, "rule of functionalize: a copy_ into each mutated input")
def epilogue_is_swapped(graph_module: fx.GraphModule) -> None:
    """The new contents of two inputs of equal size are written back to each other."""
    copies = _copies(graph_module)
    for one, other in pairwise(copies):
        first, second = one.args[1], other.args[1]
        assert isinstance(first, fx.Node)
        assert isinstance(second, fx.Node)
        if first.meta["val"].shape == second.meta["val"].shape:
            one.args, other.args = (one.args[0], other.args[1]), (other.args[0], one.args[1])
            return


@plant(after_noops, "pytorch/pytorch#198101")
def inputs_are_written_too_early(graph_module: fx.GraphModule) -> None:
    """New contents are copied to an input before the last read of its old contents."""
    # Without such a read, the results are right: see `inputs_are_written_before_the_end`.
    write_at_once(graph_module, read_later=True)


def write_at_once(graph_module: fx.GraphModule, *, read_later: bool) -> None:
    """Copy new contents to those inputs whose old ones are, or are not, read later."""
    nodes = list(graph_module.graph.nodes)
    # In the graph without no-ops, a new value may be one that was computed long before the write.
    for copy in _copies(graph_module):
        destination, source = copy.args[:2]
        if not isinstance(destination, fx.Node) or not isinstance(source, fx.Node):
            continue
        storage = storage_of(destination.meta["val"])
        between = nodes[nodes.index(source) + 1 : nodes.index(copy)]
        is_read = any(storage in operand_storages(node) for node in between)
        if destination.op == "placeholder" and is_read == read_later:
            source.append(copy)


@plant(
    after_functionalize,
    "rule of functionalize: an input ends as in eager, and no byte around it changes",
)
def gaps_are_zeroed(graph_module: fx.GraphModule) -> None:
    """An input with gaps is written back from first to last byte, with zeros in the gaps."""
    for copy in _copies(graph_module):
        destination, source = copy.args
        if not isinstance(destination, fx.Node) or destination.op != "placeholder":
            continue
        given = destination.meta["val"]
        if is_dense(Region.of(given)) or given.numel() == 0:
            continue
        span = 1 + sum(
            (size - 1) * stride for size, stride in zip(given.shape, given.stride(), strict=True)
        )
        with graph_module.graph.inserting_before(copy):
            new = graph_module.graph.call_function
            zeros = new(aten.new_zeros.default, (source, [span]))
            whole = new(
                aten.as_strided_scatter.default,
                (zeros, source, list(given.shape), list(given.stride()), 0),
            )
            into = new(aten.as_strided.default, (destination, [span], [1], given.storage_offset()))
        copy.args = (into, whole)


@plant(from_build, "pytorch/pytorch#139789")
def shared_inputs_are_separate(function: Function, inputs: Inputs) -> Build:
    """Inputs that share a storage are treated as separate, as in a graph for other inputs."""
    # Cloned one by one, the inputs share nothing.
    return Passes()(function, [clone for tensor in inputs for clone in clone_inputs([tensor])])


@plant(after_functionalize, "pytorch/pytorch#198095")
def output_loses_its_offset(graph_module: fx.GraphModule) -> None:
    """An output that views a storage shared by inputs gets the storage offset zero."""
    copies = _copies(graph_module)
    for node in graph_module.graph.nodes:
        # Behind the epilogue there are only views that are returned.
        if (
            node.target is aten.as_strided.default
            and copies
            and node > copies[-1]
            and len(node.args[1]) > 0
        ):
            node.args = (*node.args[:3], 0)


# --- outputs: the right values in the wrong memory or layout --------------------------------------


def _instead(
    graph_module: fx.GraphModule, node: fx.Node, op: Any, *args: Any, **kwargs: Any
) -> None:
    """Return the result of a call on a returned node instead of the node."""
    output = graph_module.graph.output_node()
    # An input may change until the end. Any other tensor has its values when it is computed, and
    # a call behind the epilogue would be a fault of its own.
    before = output if node.op == "placeholder" else node.next
    with graph_module.graph.inserting_before(before):
        new = graph_module.graph.call_function(op, (node, *args), kwargs)
    output.replace_input_with(node, new)


def _returned_nodes(graph_module: fx.GraphModule) -> list[fx.Node]:
    returned = nodes_in(graph_module.graph.output_node().args)
    return [node for node in dict.fromkeys(returned) if isinstance(node.meta["val"], torch.Tensor)]


def _place(node: fx.Node) -> tuple[object, ...]:
    value = node.meta["val"]
    return storage_of(value), value.dtype, value.shape, value.stride(), value.storage_offset()


def _follows_epilogue(node: fx.Node) -> bool:
    """True if a node follows a copy_ of the epilogue, where only views may be."""
    return any(
        earlier.target is aten.copy_.default and earlier < node for earlier in node.graph.nodes
    )


@plant(after_functionalize, "rule of functionalize: outputs share memory with inputs as in eager")
def aliased_output_is_copied(graph_module: fx.GraphModule) -> None:
    """An output that is a view of an unmutated input is returned as a copy."""
    inputs = input_storages(graph_module)
    for node in _returned_nodes(graph_module):
        aliased = node.op != "placeholder" and storage_of(node.meta["val"]) in inputs
        if aliased and not _follows_epilogue(node):
            _instead(graph_module, node, aten.clone.default)


@plant(after_functionalize, "rule of functionalize: an output that is an input is that very object")
def returned_input_is_another_object(graph_module: fx.GraphModule) -> None:
    """An output that is an input is returned as another tensor object on the same memory."""
    for node in _returned_nodes(graph_module):
        if node.op == "placeholder":
            _instead(graph_module, node, aten.alias.default)


@plant(after_functionalize, "pytorch/pytorch#191449")
def view_of_an_output_is_that_output(graph_module: fx.GraphModule) -> None:
    """An output that is a view of another one, of its layout, becomes that very object."""
    returned = _returned_nodes(graph_module)
    for node in returned:
        bases = [base for base in node.all_input_nodes if base in returned]
        if bases and _place(bases[0]) == _place(node):
            graph_module.graph.output_node().replace_input_with(node, bases[0])


@plant(after_functionalize, "pytorch/pytorch#89532")
def second_aliased_output_is_copied(graph_module: fx.GraphModule) -> None:
    """The second of two outputs that share a storage is returned as a copy."""
    seen: set[int] = set()
    for node in _returned_nodes(graph_module):
        storage = storage_of(node.meta["val"])
        if storage in seen and node.op != "placeholder" and not _follows_epilogue(node):
            _instead(graph_module, node, aten.clone.default)
        seen.add(storage)


@plant(after_functionalize, "rule of functionalize: as many outputs as in eager")
def repeated_last_output_is_left_out(graph_module: fx.GraphModule) -> None:
    """A last output that is also returned at an earlier index is left out."""
    output = graph_module.graph.output_node()
    returned = list(output.args[0])  # type: ignore[arg-type]
    # Only the last ones: without one in the middle, later outputs would have other indices.
    while returned and returned[-1] in returned[:-1]:
        returned.pop()
    output.args = (tuple(returned),)


@plant(after_functionalize, "pytorch/pytorch#142118")
def output_is_contiguous(graph_module: fx.GraphModule) -> None:
    """A new tensor is returned contiguous, whatever strides it has in eager."""
    returned = _returned_nodes(graph_module)
    inputs = input_storages(graph_module)
    storages = [storage_of(node.meta["val"]) for node in returned]
    for node, storage in zip(returned, storages, strict=True):
        is_new = storage not in inputs and storages.count(storage) == 1
        if is_new and not _follows_epilogue(node):
            _instead(graph_module, node, aten.clone.default, memory_format=torch.contiguous_format)


@plant(by_rule, "result_strides", "pytorch/pytorch#133512")
def new_tensor_is_made_contiguous(geometry: Geometry) -> Sequence[Size]:
    """A new tensor whose strides differ from eager is made contiguous."""
    return contiguous_strides(geometry.sizes)


# --- calls of custom operators: what they write, what they share, how they are laid out -----------

_LAID_OUT = "step of functionalize: operands of an operator of another library are as in eager"


@plant(
    after_functionalize,
    "step of functionalize: the new contents of each written argument are written",
)
def second_write_of_an_operator_is_lost(graph_module: fx.GraphModule) -> None:
    """What a custom operator writes to its second mutable argument is not written back."""
    for node in graph_module.graph.nodes:
        if node.target is not on_copies:
            continue
        op = node.args[0]
        if not is_opaque(op) or len(facts(op).writes) < 2:
            continue
        old = bind(op, node.args[1:], node.kwargs).get(facts(op).writes[1])
        second = len(facts(op).fresh) + 1
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == second and old is not None:
                user.replace_all_uses_with(old)


@plant(after_noops, "pytorch/pytorch#198031")
def operator_writes_without_a_copy(graph_module: fx.GraphModule) -> None:
    """A custom operator runs on its arguments themselves, though the old values are read later."""
    for node in graph_module.graph.nodes:
        if node.target is on_copies and is_opaque(node.args[0]) and "layouts" not in node.kwargs:
            node.target = _on_originals


def _on_originals(op: OpOverload, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    given, returned = bind(op, args, kwargs), op(*args, **kwargs)
    returns = returned if len(op._schema.returns) > 1 else (returned,)
    fresh, written = facts(op).fresh, facts(op).writes
    return (*(returns[index] for index in fresh), *(given.get(name) for name in written))


@plant(instead_of, "layouts_in_eager", _LAID_OUT, "eager.opaque_calls")
def operands_do_not_share_memory(
    env: Environment, op: OpOverload, given: dict[str, Any]
) -> list[Layout] | None:
    """Arguments of a custom operator that overlap are copied one by one, so they do no longer."""
    layouts = layouts_in_eager(env, op, given)
    if layouts is None:
        return None
    return [(number, *layout[1:]) for number, layout in enumerate(layouts)]


@plant(instead_of, "layouts_in_eager", _LAID_OUT, "eager.opaque_calls")
def operator_gets_another_layout(
    env: Environment, op: OpOverload, given: dict[str, Any]
) -> list[Layout] | None:
    """A custom operator gets a dense copy of an operand that has gaps, or an offset, in eager."""
    layouts = layouts_in_eager(env, op, given)
    if layouts is None or len({layout[0] for layout in layouts}) < len(layouts):
        return layouts
    values = [value.meta["val"] for value in nodes_in(env.arguments(given))]
    return [
        (number, value.numel() * value.itemsize, 0, tuple(contiguous_strides(value.shape)), *bits)
        for value, (number, _, _, _, *bits) in zip(values, layouts, strict=True)
    ]


@plant(
    instead_of,
    "shows_layout",
    "rule of remove_noops: no use depends on the location of a copy",
    "eager.layout_conditions",
)
def operators_see_no_layout(user: fx.Node) -> bool:
    """A copy before a custom operator is dropped, though its original is elsewhere in memory."""
    return False


# --- random ops: drawn twice, left out, in another order, or merged -------------------------------


def _random_nodes(graph_module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph_module.graph.nodes if _is_random(node)]


def _is_random(node: fx.Node) -> bool:
    # An op without a functional form is an argument of the function that calls it.
    op = node.args[0] if node.target is on_copies else node.target
    return isinstance(op, OpOverload) and facts(op).random


@plant(after_functionalize, "rule of has_effect: a random op advances the generator")
def random_op_is_drawn_twice(graph_module: fx.GraphModule) -> None:
    """A random op is computed again where it is used, and draws other numbers."""
    for node in _random_nodes(graph_module):
        with graph_module.graph.inserting_after(node):
            again = graph_module.graph.node_copy(node, lambda operand: operand)
        node.replace_all_uses_with(again)


@plant(after_functionalize, "rule of has_effect: a random op stays without a use")
def unused_random_op_is_left_out(graph_module: fx.GraphModule) -> None:
    """A random op whose numbers nobody reads is dead code, so later ops draw these numbers."""
    for node in reversed(_random_nodes(graph_module)):
        if not node.users:
            graph_module.graph.erase_node(node)


@plant(after_functionalize, "rule of functionalize: random ops draw in the order of the program")
def random_ops_are_reordered(graph_module: fx.GraphModule) -> None:
    """Of two random ops that do not depend on each other, the second draws first."""
    for first, second in pairwise(_random_nodes(graph_module)):
        nodes = list(graph_module.graph.nodes)
        before = set(nodes[: nodes.index(first)])
        if before.issuperset(second.all_input_nodes):
            first.prepend(second)


@plant(after_functionalize, "rule of all passes: no two draws are equal")
def equal_random_ops_are_merged(graph_module: fx.GraphModule) -> None:
    """Common subexpressions are merged, also random ops on tensors of equal layout."""
    seen: dict[str, fx.Node] = {}
    for node in _random_nodes(graph_module):
        plain = [it for it in (*node.args, *node.kwargs.items()) if not isinstance(it, fx.Node)]
        layouts = [(it.dtype, it.shape) for it in tensors_in([node.meta["val"]])]
        same = seen.setdefault(str((node.target, plain, layouts)), node)
        if same is not node:
            node.replace_all_uses_with(same)
            graph_module.graph.erase_node(node)
