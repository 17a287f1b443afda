"""The layouts of operands: calls on copies that have those of eager, and notes on their strides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import has_side_effect

from aliasproof.reference_pass.calls.nested import nodes_in, on_tensors, tensors_in
from aliasproof.reference_pass.calls.operator_forms import bind, facts, is_opaque, unbind
from aliasproof.reference_pass.calls.regions import Size

# (the number of a storage, its size in bytes, the offset of a tensor in it, its strides, its lazy
# conjugate bit, its lazy negative bit)
Layout: TypeAlias = "tuple[int, int, int, tuple[int, ...], bool, bool]"


@has_side_effect
def on_copies(
    op: OpOverload, *args: Any, layouts: Sequence[Layout] | None = None, **kwargs: Any
) -> tuple[Any, ...]:
    """Call a mutating operator on copies of what it writes.

    This is a functional form of any operator, also of a custom one. Returns its fresh returns, then
    the new contents of each written argument. The copies have the strides of the originals: the
    results of random fills and other opaque kernels may depend on strides. For an operator of
    another library they also have the offset of the originals, and storages of the same size.

    With `layouts`, one per tensor in the order of the arguments, the operator gets copies of all
    operands, which have these layouts and share memory as the layouts say.
    """
    return on_copies_by(_called, op, *args, layouts=layouts, **kwargs)


def _called(op: OpOverload, given: dict[str, Any]) -> Any:
    args, kwargs = unbind(op, given)
    return op(*args, **kwargs)


def on_copies_by(
    call: Callable[[OpOverload, dict[str, Any]], Any],
    op: OpOverload,
    /,
    *args: Any,
    layouts: Sequence[Layout] | None = None,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """`on_copies` with another way to call an operator: a fake kernel may need a correction."""
    known = facts(op)
    given = bind(op, args, kwargs)
    if layouts is not None:
        copies = iter(lay_out(tensors_in(given), layouts))
        given = on_tensors(given, lambda _: next(copies))
    for name in known.writes if layouts is None else ():
        value = given.get(name)  # a tensor, a list of tensors, or None for an optional one
        given[name] = (
            [copy_with_strides(item, located=is_opaque(op)) for item in value]
            if isinstance(value, (list, tuple))
            else copy_with_strides(value, located=is_opaque(op))
        )
    returned = call(op, given)
    several = isinstance(returned, (list, tuple)) and len(op._schema.returns) > 1
    returns = returned if several else (returned,)
    return (*(returns[index] for index in known.fresh), *(given.get(name) for name in known.writes))


# --- the copies -----------------------------------------------------------------------------------


def copy_with_strides(tensor: Any, *, located: bool) -> Any:
    """A copy with the same strides; if `located`, also at the same offset, in as large a storage.

    A value that is not a tensor is returned unchanged.
    """
    if not isinstance(tensor, torch.Tensor):
        return tensor
    nbytes: Any = tensor.untyped_storage().nbytes()
    # A data-dependent size is not known before the call.
    if located and (isinstance(nbytes, int) or nbytes.node.has_hint()):
        memory = torch.empty(nbytes, dtype=torch.uint8, device=tensor.device)
        copy = view_in(memory, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())
    else:
        copy = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
    span = 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    # The whole span is copied, gaps included: `copy_` refuses a tensor that overlaps itself.
    if tensor.numel():
        copy.as_strided((span,), (1,)).copy_(tensor.as_strided((span,), (1,)))
    return copy


def lay_out(tensors: Sequence[torch.Tensor], layouts: Sequence[Layout]) -> list[torch.Tensor]:
    """Copies of tensors in these layouts; layouts with the same storage number share a storage."""
    memories: dict[int, torch.Tensor] = {}
    copies = []
    for tensor, layout in zip(tensors, layouts, strict=True):
        storage, nbytes, offset, strides, conj, neg = layout
        if storage not in memories:
            memories[storage] = torch.zeros(nbytes, dtype=torch.uint8, device=tensor.device)
        copy = view_in(memories[storage], tensor.dtype, tensor.shape, strides, offset)
        # The dispatcher resolves these bits into a copy, which shares no memory with the others.
        copy = copy.conj() if conj else copy
        copies.append(torch._neg_view(copy) if neg else copy)
        destination, source = copies[-1], tensor
        # `copy_` refuses a destination with a stride of zero, whose elements are all equal here.
        for dim, stride in enumerate(strides):
            if stride == 0 and tensor.numel():
                destination, source = destination.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
        destination.copy_(source)
    return copies


def view_in(
    memory: torch.Tensor,
    dtype: torch.dtype,
    sizes: Sequence[Any],
    strides: Sequence[Any],
    offset: Any,
) -> torch.Tensor:
    """A view of memory (bytes) as elements of a dtype."""
    # A storage may end with a part of an element.
    whole = memory[: memory.numel() // dtype.itemsize * dtype.itemsize]
    return whole.view(dtype).as_strided(sizes, strides, offset)


# --- the strides that operands have in eager ------------------------------------------------------
#
# They are noted in the graph: a value can have other strides here, and the bits of some calls
# depend on strides.


def note_strides(call: fx.Node, strides: Callable[[fx.Node], Sequence[Size] | None]) -> None:
    """Note for each operand of a call the strides that it has in eager; None if not known."""
    call.meta[_STRIDES] = list(map(strides, _operands(call)))


def noted_strides(call: fx.Node) -> Iterator[tuple[fx.Node, Sequence[Size]]]:
    """The operands of a call with their strides in eager, as far as noted."""
    pairs = zip(_operands(call), call.meta.get(_STRIDES, ()), strict=False)
    return ((operand, strides) for operand, strides in pairs if strides is not None)


_STRIDES = "strides in eager"  # the key in the metadata of a node


def _operands(node: fx.Node) -> list[fx.Node]:
    """The nodes that are arguments of a call, in the order of the schema.

    The in-place or `out=` form of the same call has the same ones first.
    """
    op, args = called_operator(node)
    given = bind(op, args, node.kwargs) if isinstance(op, OpOverload) else {}
    if not node.kwargs or not given:
        return nodes_in((args, node.kwargs))
    return [leaf for name in facts(op).names if name in given for leaf in nodes_in(given[name])]


def called_operator(node: fx.Node) -> tuple[Any, tuple[Any, ...]]:
    """The operator that a node calls, maybe on copies, and its arguments by position."""
    return (node.args[0], node.args[1:]) if node.target is on_copies else (node.target, node.args)
