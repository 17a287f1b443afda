"""Patches of AOTAutograd: merged inputs, custom operators, control flow, gradients."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from unittest import mock

import torch
from torch import _prims, fx
from torch._functorch._aot_autograd.schemas import OutputType
from torch._higher_order_ops import auto_functionalize
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.passes.reinplace import _is_view_op
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy

from aliasproof.corpus.conditions import op_may_change_sizes
from aliasproof.corpus.patching import Function, Patch, replaces, replaces_kernel
from aliasproof.ir.schemas import facts

aten = torch.ops.aten

# Describes to AOTAutograd a function whose inputs were merged into synthetic bases. Its second
# operand says for each input its new index, or its base and the view of the base.
_MERGED_INPUTS = "torch._functorch._aot_autograd.runtime_wrappers:create_synthetic_base_metadata"


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a tensor, with the methods of a tensor. `base` is the layout of its base."""

    sizes: Any
    strides: Any
    offset: Any
    base: Layout | None = None

    def size(self) -> Any:
        return self.sizes

    def stride(self) -> Any:
        return self.strides

    def storage_offset(self) -> Any:
        return self.offset


def layout_of_value(tensor: Any, base: Layout | None = None) -> Layout:
    """The layout of the present value of a functional tensor.

    The tensor's own layout can be that of an earlier value: a write replaces the value of a base,
    and the functional op chooses the layout. Views are recomputed from the new value.
    """
    if isinstance(tensor, FunctionalTensor):
        torch._functionalize_sync(tensor.elem)
        tensor = torch._from_functional_tensor(tensor.elem)
    return Layout(tensor.size(), tensor.stride(), tensor.storage_offset(), base)


@replaces(_MERGED_INPUTS)
def synthetic_base_views(
    original: Function, metadata: Any, merged: Sequence[Any], *rest: Any
) -> Any:
    """Outputs that are views of a merged input are made from their sizes, strides and offset.

    This is the fix of pytorch/pytorch#198097. A view of another dtype has no such sizes and
    strides, so it is replayed.
    """
    outputs = [
        replace(info, view_meta_sequence=None)
        if info.base_idx is not None
        and isinstance(merged[info.base_idx], tuple)
        and not any(
            type(view).__name__.startswith("view_dtype")
            for view in getattr(info.view_meta_sequence, "sequence", ())
        )
        else info
        for info in metadata.output_info
    ]
    return original(replace(metadata, output_info=outputs), merged, *rest)


@replaces(_MERGED_INPUTS)
def renumbered_input(original: Function, metadata: Any, merged: Sequence[Any], *rest: Any) -> Any:
    """An output that is an unmerged input stays that input.

    Torch takes a new index of the input as a sign of a new base, but inputs also move when others
    are merged.
    """
    created, indices = original(metadata, merged, *rest)
    outputs = list(created.output_info)
    for position, info in enumerate(metadata.output_info):
        if info.output_type is OutputType.is_input and isinstance(merged[info.base_idx], int):
            outputs[position] = replace(outputs[position], output_type=OutputType.is_input)
    return replace(created, output_info=outputs), indices


# A function of `torch._prims` gets this code with its own globals, so it uses no name of ours.
def _meta(
    input: torch.Tensor,  # noqa: A002 - the parameter is named so in torch
    src: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int,
) -> Any:
    return torch._prims_common.clone_preserve_strides(input)


@Patch
@contextlib.contextmanager
def as_strided_scatter_meta() -> Iterator[None]:
    """The meta function does not check the storage: the kernel does, and it ran in eager.

    Torch compares with the number of elements of the input, but its storage can be longer.
    """
    # The code is replaced, not the function, since other modules have imported the function
    # already.
    function, code = _prims._as_strided_scatter_meta, _prims._as_strided_scatter_meta.__code__
    function.__code__ = _meta.__code__
    try:
        yield
    finally:
        function.__code__ = code


@replaces_kernel("bernoulli_.float", "Functionalize")
def bernoulli_in_order(original: Function, x: torch.Tensor, *args: Any) -> torch.Tensor:
    """The tensor is written through a view whose indices are in memory order.

    The result of `bernoulli.p` is contiguous, whatever its operand is.
    """
    original(x.permute(sorted(range(x.dim()), key=x.stride, reverse=True)), *args)
    return x


# `normal_kernel` fills contiguous tensors of this many elements at once (DistributionTemplates.h).
_AT_ONCE = 16


@replaces_kernel("normal_", "Functionalize")
def normal_of_strided(original: Function, x: torch.Tensor, *args: Any) -> torch.Tensor:
    """The numbers of a tensor with gaps are drawn one by one, in memory order.

    On the CPU, the kernel does so for tensors that are not contiguous, or have few elements.
    """
    in_memory_order = x.permute(sorted(range(x.dim()), key=x.stride, reverse=True))
    if in_memory_order.is_contiguous():
        original(x, *args)
        return x
    count = math.prod(x.shape)
    parts = [x.new_empty(min(_AT_ONCE - 1, count - at)) for at in range(0, count, _AT_ONCE - 1)]
    for part in parts:
        part.normal_(*args)
    in_memory_order.copy_(torch.cat(parts).reshape(in_memory_order.shape))
    return x


@replaces("torch._subclasses.functional_tensor:FunctionalTensorMode.__torch_dispatch__")
def lost_strides(
    original: Function,
    self: FunctionalTensorMode,
    func: OpOverload,
    types: Sequence[type],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """After each op under AOTAutograd, written tensors have their old strides again.

    Torch replaces the written tensor with the result of the functional op, whatever its strides.
    """
    before = [
        (tensor, tensor.shape, tensor.stride())
        for tensor in _written_tensors(func, args, kwargs or {})
    ]
    result = original(self, func, types, args, kwargs)
    for tensor, shape, strides in before:
        torch._functionalize_sync(tensor)  # another patch writes through a view of it
        if tensor.shape == shape and tensor.stride() != strides:
            _give_strides(tensor, strides)
    return result


def _written_tensors(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The functional tensors, as C++ sees them, that the op writes."""
    if torch.Tag.inplace_view in op.tags:  # it writes metadata, so it may change strides
        return []
    arguments = op._schema.arguments
    given = dict(enumerate(args))
    for index, argument in enumerate(arguments):
        if argument.name in kwargs:
            given[index] = kwargs[argument.name]
    operands = tree_leaves([given.get(index) for index in facts(op).writes])  # may be lists
    return [operand.elem for operand in operands if isinstance(operand, FunctionalTensor)]


def _give_strides(tensor: torch.Tensor, strides: Sequence[int]) -> None:
    torch._functionalize_sync(tensor)
    inner = torch._from_functional_tensor(tensor)
    empty = aten.new_empty_strided.default(inner, inner.shape, strides)
    torch._functionalize_replace(tensor, aten.copy.default(empty, inner))
    torch._functionalize_commit_update(tensor)
    torch._functionalize_sync(tensor)


_OVERLAP_MODULES = (
    "torch._functorch._aot_autograd.input_output_analysis",
    "torch._inductor.fx_passes.reinplace",
)


@replaces(*(f"{module}:compute_overlapping_tensors" for module in _OVERLAP_MODULES))
def overlap_of_item_sizes(
    original: Callable[..., set[int]], tensors: Sequence[torch.Tensor], **options: Any
) -> set[int]:
    """Tensors of two item sizes overlap if their extents, from first to last byte, overlap.

    If AOTAutograd sees that inputs of two dtypes overlap, it refuses to write them, as its error
    says.
    """
    overlapping = original(tensors, **options)
    for one, first in enumerate(tensors):
        for other, second in enumerate(tensors[:one]):
            if first.itemsize == second.itemsize or first.numel() == 0 or second.numel() == 0:
                continue
            (start, end), (other_start, other_end) = _extent(first), _extent(second)
            if start < other_end and other_start < end:
                overlapping = {*overlapping, one, other}
    return overlapping


def _extent(tensor: torch.Tensor) -> tuple[Any, Any]:
    """The first byte in the storage, and the end after the last one."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in sizes)
    return tensor.storage_offset() * tensor.itemsize, (last + 1) * tensor.itemsize


@replaces(*(f"{module}:compute_overlapping_tensors" for module in _OVERLAP_MODULES))
def rows_taken_for_disjoint(
    original: Callable[..., set[int]], tensors: Sequence[torch.Tensor], **options: Any
) -> set[int]:
    """Rows of one matrix overlap if row 0 of the second begins within a row of the first."""
    overlapping = original(tensors, **options)
    for (one, x), (other, y) in itertools.permutations(enumerate(tensors), 2):
        if (x.dim(), x.stride(), x.itemsize) != (2, y.stride(), y.itemsize) or x.stride(1) != 1:
            continue
        stride, delta = x.stride(0), y.storage_offset() - x.storage_offset()
        if stride > 0 and 0 <= delta < stride * x.shape[0] and delta % stride < x.shape[1]:
            overlapping = {*overlapping, one, other}
    return overlapping


@replaces("torch._functorch._aot_autograd.graph_capture:create_functionalized_fn")
def returned_write_beside_another(
    original: Function, *args: Any, meta: Any, trace_joint: bool, **options: Any
) -> Any:
    """The graph returns the new contents of an input, and not the input in their place.

    In `create_functionalized_fn`, torch stores the input at the index of the output. A training
    graph returns, before the outputs, the inputs that are written outside the graph.
    """
    if meta.num_mutated_inp_runtime_indices:
        outputs = [
            replace(info, output_type=OutputType.alias_of_input)
            if info.output_type is OutputType.is_input
            else info
            for info in meta.output_info
        ]
        meta = replace(meta, output_info=outputs)
    return original(*args, meta=meta, trace_joint=trace_joint, **options)


@replaces(_MERGED_INPUTS)
def tangents_of_merged_inputs(
    original: Function, metadata: Any, merged: Sequence[Any], *rest: Any
) -> Any:
    """The gradients of the bases replace the gradients of all written inputs.

    In `create_synthetic_base_metadata`, torch drops as many gradients as there are bases, but there
    is one for each written input.
    """
    created, indices = original(metadata, merged, *rest)
    before, after = _gradient_count(metadata), _gradient_count(created)
    for name in ("traced_tangents", "traced_tangents_descs", "subclass_tangent_meta"):
        of_bases = getattr(created, name)[:after]
        setattr(created, name, of_bases + getattr(metadata, name)[before:])
    return created, indices


def _gradient_count(metadata: Any) -> int:
    return sum(info.mutates_data and info.requires_grad for info in metadata.input_info)


@replaces("torch:_functionalize_is_multi_output_view")
def multi_output_view_of_written(original: Callable[..., bool], tensor: torch.Tensor) -> bool:
    """AOTAutograd treats results of `split` and `unbind` as ordinary views.

    Torch returns the graph's own results, since autograd allows no writes to them. These are views
    of the new contents, which are later copied to the input.
    """
    return False


_OF_INPUTS = (OutputType.alias_of_input, OutputType.is_input)


@replaces(_MERGED_INPUTS)
def renumbered_outputs(original: Function, metadata: Any, merged: Sequence[Any], *rest: Any) -> Any:
    """The base of an output that is a view of another output keeps its index.

    Torch looks up each index of a base among the inputs, and inputs move when others are merged.
    """
    outputs = [
        info if info.output_type in _OF_INPUTS else replace(info, base_idx=None)
        for info in metadata.output_info
    ]
    created, indices = original(replace(metadata, output_info=outputs), merged, *rest)
    restored = [
        now if before.output_type in _OF_INPUTS else replace(now, base_idx=before.base_idx)
        for before, now in zip(metadata.output_info, created.output_info, strict=False)
    ]
    # Inputs with changed metadata come after them.
    added = created.output_info[len(restored) :]
    return replace(created, output_info=[*restored, *added]), indices


@replaces("torch._functorch.partitioners:force_save_bw_mutation_src")
def recomputed_from_written(original: Function, joint: fx.GraphModule) -> Any:
    """A result that depends on an input which the graph writes is saved for the backward graph.

    This is the fix of pytorch/pytorch#197039. Torch recomputes cheap results, and assumes that each
    input is the same in the backward pass.
    """
    for write in joint.graph.find_nodes(op="call_function", target=aten.copy_.default):
        for reader in _readers(write.args[0]):
            reader.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return original(joint)


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """The calls that read the data of a tensor or of its views, and make a new tensor."""
    for use in node.users:
        if _is_view_op(use.target):
            yield from _readers(use)
        elif use.op == "call_function" and use.target is not aten.copy_.default:
            yield use


@replaces("torch._higher_order_ops.auto_functionalize:try_use_slice")
def custom_slice_offset(original: Function, base: Any, tensor: Any) -> Any:
    """Offsets count from the first element of the base.

    `try_use_slice` divides the storage offset of the view by the stride. That is the index of the
    view in its base if the base is at the start of its storage.
    """
    whole, part = layout_of_value(base), layout_of_value(tensor)
    part = replace(part, offset=part.offset - whole.offset)
    return original(replace(whole, offset=0), part)


@replaces("torch._higher_order_ops.auto_functionalize:try_use_slice")
def custom_slice_by_zero(original: Function, base: torch.Tensor, tensor: torch.Tensor) -> Any:
    """A view with a stride of 0 is taken by `as_strided`, not by `slice`.

    A view with one element along such a stride may be written. AOTAutograd then refuses to write an
    input that overlaps itself, as documented.
    """
    return None if 0 in tensor.stride() else original(base, tensor)


@replaces("torch._higher_order_ops.auto_functionalize:write_view_information_to_args")
def custom_view_of_new_base(
    original: Function, names: list[str], types: Any, kwargs: dict[str, Any], bases: Any
) -> None:
    """Views are described by the layouts of their present values.

    Torch describes a view by its layout when it was taken. A later write replaces the base with a
    new tensor, in its own storage.
    """
    given = {name: kwargs[name] for name in names}
    kwargs |= {name: _layouts(argument) for name, argument in given.items()}
    with mock.patch.object(auto_functionalize, "get_base", lambda layout: layout.base):
        original(names, types, kwargs, bases)
    kwargs |= given


def _layouts(given: Any) -> Any:
    if given is None:
        return None
    if isinstance(given, list):
        return [_layouts(argument) for argument in given]
    base = auto_functionalize.get_base(given)
    return layout_of_value(given, None if base is None else layout_of_value(base))


@replaces(
    "torch._higher_order_ops.auto_functionalize:_do_auto_functionalize_v2_for_inplace_operator",
    "torch._higher_order_ops.auto_functionalize:_do_auto_functionalize_v2_for_out_operator",
)
def custom_result_unwritten(
    original: Function, ctx: Any, op: Any, schema: Any, arguments: dict[str, Any]
) -> Any:
    """Functionalization returns the written argument, as the operator does.

    Torch wraps the result anew. So a write through the result is lost, and the fallback for lazily
    negated and conjugated tensors asserts that the result is the argument.
    """
    names, _ = auto_functionalize.get_mutable_args_from_schema(schema)
    returned = [arguments[name] for name in names]  # the original removes them
    original(ctx, op, schema, arguments)
    return returned[0] if len(returned) == 1 else tuple(returned)


@replaces("torch._higher_order_ops.cond:check_input_alias_and_mutation_return_outputs")
def cond_foreach(original: Function, branch: fx.GraphModule) -> Any:
    """The analysis of a branch sees a write for each tensor of a written list.

    Torch assumes that each written argument is a tensor.
    """
    changed = copy.copy(branch)
    changed.graph = copy.deepcopy(branch.graph)
    for node in list(changed.graph.nodes):
        name = node.target._schema.name if isinstance(node.target, OpOverload) else ""
        if name.startswith("aten::_foreach_") and name.endswith("_"):
            operands: Any = node.args[0]
            with changed.graph.inserting_before(node):
                for operand in operands:
                    changed.graph.call_function(aten.zero_.default, (operand,))
            changed.graph.erase_node(node)
    return original(changed)


@replaces("torch:ops.higher_order.cond.python_key_table", keys=(FunctionalTensorMode,))
def cond_operands_share(
    original: Function,
    mode: FunctionalTensorMode | None,
    predicate: Any,
    true: Callable[..., Any],
    false: Callable[..., Any],
    operands: Sequence[Any],
) -> Any:
    """Operands that share a storage go into the branches as one base, and become views of it there.

    Torch gives a branch a new tensor for each operand that a branch writes, and the old tensors for
    all others. It then functionalizes the branches, as if no operands shared memory.
    """
    bases, on_views = _on_bases(operands)
    return original(mode, predicate, on_views(true), on_views(false), bases)


def _on_bases(operands: Sequence[Any]) -> tuple[list[Any], Callable[..., Any]]:
    """The operands without those that share a storage, and a function that gives a branch all.

    Only operands of the dtype of their base become views of it.
    """
    bases: list[Any] = []
    # For each operand, the index of its base, and its layout if it shares a storage.
    places: list[tuple[int, Any]] = []
    for operand in operands:
        base, layout = operand, None
        if isinstance(operand, torch.Tensor) and _is_shared(operand, operands):
            base = operand if operand._base is None else operand._base
            offset = operand.storage_offset() - base.storage_offset()
            layout = (operand.shape, operand.stride(), offset)
        index = next((i for i, other in enumerate(bases) if other is base), len(bases))
        bases[index:] = bases[index:] or [base]
        places.append((index, layout))
    if all(layout is None for _, layout in places):
        # The branches are not changed: other patches inspect them.
        return list(operands), lambda branch: branch

    def on_views(branch: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            return branch(*(_view(given[index], layout) for index, layout in places))

        return call

    return bases, on_views


def _is_shared(operand: torch.Tensor, operands: Sequence[Any]) -> bool:
    storage = operand.untyped_storage()._cdata
    sharing = [
        other
        for other in operands
        if isinstance(other, torch.Tensor) and other.untyped_storage()._cdata == storage
    ]
    bases = [other if other._base is None else other._base for other in sharing]
    return len(sharing) > 1 and len({tensor.dtype for tensor in (*sharing, *bases)}) == 1


def _view(base: Any, layout: Any) -> Any:
    if layout is None:
        return base
    sizes, strides, offset = layout
    return base.as_strided(sizes, strides, base.storage_offset() + offset)


_INPUT_ALIAS_INFO = "torch._functorch._aot_autograd.schemas:InputAliasInfo.__post_init__"


@Patch
@contextlib.contextmanager
def hidden_write_copied_back() -> Iterator[None]:
    """An input whose writes autograd does not see is written back as a leaf is.

    Such writes are under `no_grad`, to a detached view, or by a custom operator. Torch copies to a
    detached leaf, since autograd would raise. For other inputs, the copy becomes the `grad_fn`, so
    the gradient of the copied contents is zero.
    """
    changed: list[Any] = []

    def post_init(original: Function, info: Any) -> None:
        original(info)
        hidden = info.mutations_under_no_grad_or_inference_mode
        if (hidden or info.mutations_hidden_from_autograd) and not info.is_leaf:
            object.__setattr__(info, "is_leaf", True)
            changed.append(info)

    def merged(original: Function, *args: Any, **kwargs: Any) -> Any:
        # Torch asserts that all or none of the inputs that it merges are leaves.
        for info in changed:
            object.__setattr__(info, "is_leaf", False)
        return original(*args, **kwargs)

    with replaces(_INPUT_ALIAS_INFO)(post_init)(), replaces(_MERGED_INPUTS)(merged)():
        yield


@replaces("torch._functorch._aot_autograd.schemas:OutputAliasInfo.__init__")
def detached_view_replayed(original: Function, info: Any, **fields: Any) -> None:
    """Such an output is made by `as_strided` from the other one.

    The other one is an output with the same layout in the same storage that requires gradients.
    Torch replays the views of the detached output on it, so that they are applied twice.
    """
    # If a view of an output is also a view for autograd, it requires gradients as its base does.
    of_output = fields["output_type"] is OutputType.alias_of_intermediate_base_is_user_output
    if of_output and not fields["requires_grad"]:
        fields["view_meta_sequence"] = None
    original(info, **fields)


@replaces("torch:_functionalize_has_metadata_mutation")
def set_within_storage(original: Function, tensor: torch.Tensor) -> bool:
    """After `set_`, sizes, strides and offset of an input are compared, even for the same storage.

    Torch compares them only after calls such as `t_`. After `set_`, it compares the storages.
    """
    return original(tensor) or torch._functionalize_was_storage_changed(tensor)


@replaces("torch._subclasses.functional_tensor:FunctionalTensorMode.__torch_dispatch__")
def stale_wrapper(
    original: Function,
    mode: FunctionalTensorMode,
    func: Any,
    types: Sequence[type],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """After such a call, the wrapper gets the layout of the wrapped tensor.

    Torch also runs `t_`, `squeeze_` and so on on the wrapper, but neither `set_` with a tensor nor
    a call that resizes its buffer. Composite operators then see the old sizes.
    """
    result = original(mode, func, types, tuple(args), dict(kwargs or {}))
    if isinstance(func, OpOverload) and op_may_change_sizes(func):
        given = (args[0], *(kwargs or {}).values())
        for wrapper in (it for it in given if isinstance(it, FunctionalTensor)):
            with no_dispatch():
                inner = torch._from_functional_tensor(wrapper.elem)
                if (wrapper.shape, wrapper.stride()) != (inner.shape, inner.stride()):
                    fresh = FunctionalTensor(wrapper.elem, cast(FunctionalTensorMode, wrapper.mode))
                    aten.set_.source_Tensor(wrapper, fresh)
    return result
