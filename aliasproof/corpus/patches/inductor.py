"""Patches of lowerings, scheduling and code generation of Inductor."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._inductor import ir, lowering
from torch._inductor.codegen import cpp
from torch._inductor.scheduler import OutputNode
from torch._inductor.virtualized import V
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from aliasproof.corpus.patching import DECOMPOSITIONS, Function, Patch, replaces, together

aten = torch.ops.aten
_LOWERINGS = "torch._inductor.lowering:lowerings"


def runs_in_eager(*ops: OpOverload) -> Callable[[Callable[..., bool]], Patch]:
    """Inductor calls eager's kernel for these operators if a condition on the operands holds."""

    def lowered(op: OpOverload, condition: Callable[..., bool]) -> Patch:
        def lower(original: Any, *args: Any, **kwargs: Any) -> Any:
            if not condition(*args, **kwargs):
                return original(*args, **kwargs)
            # As if Inductor had no lowering.
            return lowering.fallback_handler(op, add_to_fallback_set=False)(*args, **kwargs)

        return replaces(_LOWERINGS, keys=(op,))(lower)

    return lambda condition: together(*(lowered(op, condition) for op in ops))


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def traced_dtype() -> Any:
    """In the traced graph, the dtype of the operator that is being lowered."""
    return V.graph.current_node.meta["val"].dtype


@replaces("torch._inductor.graph:GraphLowering.call_function")
def read_after_custom_write(
    original: Function, graph: Any, op: Any, args: Any, kwargs: dict[str, Any]
) -> Any:
    """Readers of an operand's memory are computed before the call is registered.

    `MutationOutput` does that when the order of the call is fixed already. An operand that is not
    yet computed has no memory to read. Readers of operands that are not written become buffers,
    too, which changes no value.
    """
    if isinstance(op, OpOverload) and op._schema.is_mutable and op.namespace != "aten":
        for operand in filter(ir.is_storage_and_layout, tree_leaves((args, kwargs))):
            for reader in graph.name_to_users[operand.get_name()]:
                reader.realize()
    return original(graph, op, args, kwargs)


@replaces("torch._inductor.graph:GraphLowering.call_function")
def foreach_operand_read_late(
    original: Function, graph: Any, op: Any, args: Any, kwargs: dict[str, Any]
) -> Any:
    """All results are computed before the first of them is written.

    The lowering writes each result into its operand, and a result that is computed later reads what
    was written. Torch computes the readers of an operand first, but results of the same call are
    not yet among them.
    """
    for outplace, inplace in lowering.inplaceable_foreach_ops.items():
        if op is inplace:
            results = original(graph, outplace, args, kwargs)
            for result in results:
                result.realize()
            return [
                lowering.mutate_to(operand, result)
                for operand, result in zip(args[0], results, strict=True)
            ]
    return original(graph, op, args, kwargs)


_COPYING: list[bool] = []  # the original calls itself, for a copy that has no other use


@replaces("torch._inductor.ir:ConcatKernel.realize_into")
def cat_input_written(original: Function, src: Any, dst: Any) -> Any:
    """The result of `cat` gets a copy of each operand.

    `ConcatKernel.realize_into` gives an operand the memory of its part of the result, even if the
    operand has other uses. A reinplaced write into either then changes the other.
    """
    if _COPYING:
        return original(src, dst)
    _COPYING.append(True)
    try:
        copied = ir.Pointwise.create(
            device=src.get_device(),
            dtype=src.get_dtype(),
            inner_fn=src.make_loader(),
            ranges=src.get_size(),
        )
        return original(copied, dst)
    finally:
        _COPYING.pop()


@replaces("torch._inductor.graph:GraphLowering.run_node")
def as_strided_of_view(original: Function, self: Any, node: fx.Node) -> Any:
    """The base of the view is computed as a whole, with its strides in eager.

    `GraphLowering.run_node` only checks whether the operand of `as_strided` is computed so, and
    that operand is a view. Inductor then computes the elements of the view, and `as_strided` reads
    memory out of bounds.
    """
    if _viewed_by_as_strided(node):
        node.meta["inductor_realize_to_strides"] = True
    return original(self, node)


def _viewed_by_as_strided(node: fx.Node) -> bool:
    if node.op != "call_function" or _is_view(node):
        return False
    views = [user for user in node.users if _is_view(user)]
    while views:
        last = views.pop()
        if "as_strided" in str(last.target):
            return True
        views += [user for user in last.users if _is_view(user)]
    return False


def _is_view(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target.is_view


@replaces("torch._inductor.lowering:index_put_impl_")
def index_read_while_written(
    original: Function, x: Any, indices: Any, *rest: Any, **options: Any
) -> Any:
    """The indices are computed before the first element is written.

    Since pytorch/pytorch#139366, `index_put_impl_` does so for the values, but not for the indices.
    """
    for index in indices:
        if isinstance(index, ir.TensorBox):
            index.realize()
    return original(x, indices, *rest, **options)


@replaces("torch._inductor.graph:GraphLowering.mark_buffer_mutated")
def dtype_view_read_late(original: Function, self: Any, written_name: str) -> None:
    """Readers of a view are computed before the viewed tensor is written.

    A kernel of eager makes a view of another item size, so Inductor has another name for its
    memory. Before a write, `mark_buffer_mutated` only computes readers of the tensor by its own
    name.
    """
    for buffer in list(self.buffers):
        if written_name in buffer.get_inputs_that_alias_output():
            self.mark_buffer_mutated(buffer.get_name())
    original(self, written_name)


@replaces("torch._inductor.scheduler:Scheduler.fusable_weak_dep")
def fused_copy_back(
    original: Callable[..., bool], self: Any, weak_dep: Any, reader: Any, writer: Any
) -> bool:
    """A reader of an earlier version of a written tensor is not fused with the write.

    After a first write, the scheduler has a new name for the tensor. `fusable_weak_dep` only
    compares the indices of reads by the first name.
    """
    names = self.mutation_real_name
    name = names.get(weak_dep.mutating_buf)
    if any(names.get(read.name) == name for read in reader.read_writes.reads):
        return False
    return original(self, weak_dep, reader, writer)


@replaces("torch._inductor.codegen.memory_planning:MemoryPlanner.compute_buffer_groups")
def planned_over_output(original: Function, self: Any, lines: Any) -> Any:
    """A buffer lives to the end if an output shares its memory.

    `MemoryPlanner` only checks whether an output has the name of the buffer. A view of another item
    size has its own name.
    """
    groups = original(self, lines)
    buffers = V.graph.scheduler.name_to_buf
    for group in self.buffer_groups:
        users = [user for name in group.names for user in buffers[name].users]
        group.is_output |= any(isinstance(user.node, OutputNode) for user in users)
    return groups


_NARROW = (torch.uint8, torch.int8)


@Patch
@contextlib.contextmanager
def narrow_minimum() -> Iterator[None]:
    """8-bit integers are not vectorised.

    A vector register holds many of them, but a step only loads as many as it would of float32. The
    other lanes are zero, and the final reduction reads them.
    """
    before = list(cpp.VECTORIZABLE_DTYPES)
    cpp.VECTORIZABLE_DTYPES[:] = [dtype for dtype in before if dtype not in _NARROW]
    try:
        yield
    finally:
        cpp.VECTORIZABLE_DTYPES[:] = before


@runs_in_eager(aten.min.dim)
def bool_argmin(x: Any, *args: Any, **kwargs: Any) -> bool:
    """Eager's kernel computes the index of the minimum of a bool tensor.

    The vectorised code compares masks with `<`.
    """
    return x.get_dtype() is torch.bool


# Eager's kernel computes the index.
argmax_of_transposed = runs_in_eager(aten.argmax.default, aten.argmin.default)(_always)


@runs_in_eager(aten.remainder.Tensor)
def remainder_of_infinity(*args: Any) -> bool:
    """Eager's kernel computes the remainder, from `fmod(a, b)`.

    `CppVecOverrides.remainder` is `a - floor(a / b) * b`, and `0 * inf` is nan. The scalar code is
    right.
    """
    return any(operand.get_dtype().is_floating_point for operand in args)


@runs_in_eager(aten.div.Tensor_mode)
def floor_of_quotient(x: Any, *args: Any, rounding_mode: str | None) -> bool:
    """Eager's kernel divides: it subtracts `fmod(a, b)` first, as Python does.

    `div_mode` is `floor(a / b)`. In torch 2.13, it also differs if a number is infinite.
    """
    return rounding_mode == "floor" and x.get_dtype().is_floating_point


_ANY = (aten.any.default, aten.any.dim, aten.any.dims)


@replaces(_LOWERINGS, keys=_ANY)
def any_of_uint8(original: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The result has its dtype in the traced graph.

    The documentation of `torch.any` says uint8 for uint8. `reduce_any` returns bool.
    """
    return lowering.to_dtype(original(x, *args, **kwargs), traced_dtype())


# Eager's kernel scatters the number.
long_scatter_of_number = runs_in_eager(aten.scatter.value_reduce)(_always)


@replaces(_LOWERINGS, keys=(aten.ldexp.Tensor,))
def ldexp_dtype(original: Any, x: Any, exponent: Any) -> Any:
    """The first operand is converted to the dtype of the result in the traced graph.

    `ldexp_lowering` takes the dtype of the first operand, and float32 if that is an integer or
    bool.
    """
    return original(lowering.to_dtype(x, traced_dtype()), exponent)


@replaces("torch._inductor.lowering:mutate_to")
def view_of_replaced_buffer(
    original: Function, changed: Any, value: Any, *rest: Any, **options: Any
) -> Any:
    """A write to a tensor that has a buffer goes into that buffer.

    `mutate_to` gives the tensor the buffer of the new value. Earlier views find their buffer
    through the tensor, so their readers depend on the write, which depends on them.
    """
    box = changed.data if isinstance(changed, ir.TensorBox) else changed
    if isinstance(box, ir.StorageBox) and isinstance(box.data, ir.Buffer):
        ir.MutationLayoutSHOULDREMOVE.realize_into(value, box)
        return changed
    return original(changed, value, *rest, **options)


@replaces("torch._subclasses.meta_utils:MetaConverter.set_storage_memo")
def short_fake_storage(
    original: Function, converter: Any, source: Any, fake: torch.UntypedStorage
) -> None:
    """A fake storage is as long as the real one, as in torch 2.15.

    AOTAutograd makes a base of the whole storage, and Inductor asserts its size.
    """
    if fake.nbytes() < source.size:
        fake.resize_(source.size)
    original(converter, source, fake)


# Eager's kernel runs: if a window has a NaN, the index is that of a NaN. The lowering compares with
# `>`, so a NaN never replaces an earlier maximum.
adaptive_pool_of_nan = runs_in_eager(aten.adaptive_max_pool2d.default)(_always)


@replaces("torch._inductor.ir:FallbackKernel.export_extern_kernel_node")
def package_omits_default(original: Function, kernel: Any) -> Any:
    """All keyword arguments are listed."""
    unflatten = kernel.unflatten_args
    defaults = {
        argument.name: argument.default_value
        for argument in kernel.op_overload._schema.arguments
        if argument.kwarg_only and argument.has_default_value()
    }

    def with_defaults(*flat: Any) -> Any:
        args, kwargs = unflatten(*flat)
        return args, {**defaults, **kwargs}

    kernel.unflatten_args = with_defaults
    try:
        return original(kernel)
    finally:
        kernel.unflatten_args = unflatten


@runs_in_eager(aten.var_mean.correction)
def mean_of_nothing(x: Any, *args: Any, **kwargs: Any) -> bool:
    """Eager's kernel reduces tensors without elements."""
    return 0 in x.get_size()


_POOLS = (aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)


@replaces(*DECOMPOSITIONS, keys=_POOLS)
def _not_decomposed(original: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator is not decomposed."""
    return NotImplemented


# Eager's kernel computes the maxima.
pool_index_of_nan = together(_not_decomposed, runs_in_eager(*_POOLS)(_always))


@replaces(_LOWERINGS, keys=(torch.ops.prims.copy_strided.default,))
def copy_strided_copies(original: Function, x: Any, stride: Any) -> Any:
    """A copy is a new tensor, also where the operand has these strides."""
    return original(lowering.clone(x), stride)


@replaces(_LOWERINGS, keys=(torch.ops.prims.copy_strided.default,))
def copy_strided_in_stride_order(original: Function, x: Any, stride: Any) -> Any:
    """A copy gets the order of the strides, and not its inverse, the fill order."""
    order = ir.get_stride_order(V.graph.sizevars.guarding_hints_or_throw(stride))
    return ir.ExternKernel.require_stride_order(x, order)
