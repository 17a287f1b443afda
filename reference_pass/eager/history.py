"""Writes that autograd does not see, in a graph that is differentiated later.

Under `torch.no_grad`, or through `x.detach()`, a program changes the contents of a tensor, and
autograd does not notice: a gradient of the tensor after the write is a gradient of the tensor
before it. In a graph without writes there are two values, the old one and the new one. So the new
value gets the *history* of the old one:

    z = detach(x)                      z1 = mul(detach(x), 2)
    z.mul_(2)                          x1 = with_history(x, z1)
    return x * w                       return mul(x1, w)         the gradient of x is that of x1

Here `detach` is a view like any other, and `with_history` is its inverse.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.alias_analysis import Analysis
from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import (
    SCATTERS,
    aten,
    bind,
    facts,
    functional_form,
)
from aliasproof.reference_pass.calls.regions import Region, contains, known, overlaps_itself
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.views import INVERSES

# In the `meta` of a captured node: its value requires a gradient.
HAS_GRADIENT = "has gradient"


class LostHistory(Refused):
    """Memory has a history that no new value has, or torch cannot give a new value a history."""


# Errors of operators, of their fake kernels, and of autograd.
_OF_OPERATORS = (RuntimeError, TypeError, ValueError, IndexError)
_TORCH = str(Path(torch.__file__).parent)


def is_of_torch(error: Exception) -> bool:
    """True for an error that torch raises, in Python or in one of its operators.

    A pass raises `Refused`; if it has a bug, it fails with an error of another class.
    """
    (*_, last) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, _OF_OPERATORS) or last[0].f_code.co_filename.startswith(_TORCH)


@contextlib.contextmanager
def lost_where_torch_raises() -> Iterator[None]:
    """Turn an error that torch raises in a trace into `LostHistory`.

    Some operators cannot be traced, or have a gradient that cannot. If eager raises the error, too,
    the given graph raises it when it is called.
    """
    try:
        with torch.set_grad_enabled(torch.is_grad_enabled()):  # the graph may switch gradients
            yield
    except Exception as error:
        if not is_of_torch(error):
            raise
        raise LostHistory(f"torch cannot trace it: {type(error).__name__}: {error}") from error


class _Replacing(torch.autograd.Function):
    """A new value for an old one, which gets its gradient, or zero if the new one `overwrites`."""

    @staticmethod
    def forward(ctx: Any, old: torch.Tensor, new: torch.Tensor, overwrites: bool) -> torch.Tensor:
        ctx.overwrites = overwrites
        return new.detach()  # keeps strides of dimensions of size one, unlike `view`

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        if ctx.overwrites:
            return torch.zeros_like(gradient), gradient, None
        return gradient, None, None


def with_history(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """The new contents of a tensor, with the gradients of its old ones.

    Raises `LostHistory` if the new contents have a history of their own: then two tensors of the
    program have the same memory, and different gradients.
    """
    if torch.is_grad_enabled() and new.requires_grad:
        raise LostHistory(
            "what is written through detach() has a gradient, and the tensor that was detached has"
            " another one; write the tensor itself, or detach what is written"
        )
    if not old.requires_grad:
        return new
    result: torch.Tensor = _Replacing.apply(old, new, False)
    return result


def overwriting(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """New contents that overwrite others under autograd, as `copy_` and random fills do.

    Eager propagates zeros to the tensors that the old contents come from. On the way the zeros may
    change their sign, or become NaN: those of `x.log_().zero_()` where x is 0.
    """
    if not (torch.is_grad_enabled() and old.requires_grad):
        return new
    result: torch.Tensor = _Replacing.apply(old, new, True)
    return result


def _minus_zero(gradient: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    """A summand that changes no bit of a gradient."""
    number = complex(-0.0, -0.0) if gradient.is_complex() else -0.0
    return gradient.new_full(sizes, number)


class _Storing(torch.autograd.Function):
    """A write whose gradient for the old contents is minus zero, which changes no sum."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, contents: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)
        return tensor.copy_(contents)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return _minus_zero(gradient, gradient.shape), gradient


def store(tensor: torch.Tensor, contents: torch.Tensor) -> torch.Tensor:
    """`copy_` of new contents that were computed from the old ones.

    So the gradient that the old contents get from the copy is added to their own. The zeros of
    `copy_` would turn a gradient of minus zero into zero.
    """
    if torch.is_grad_enabled() and tensor.requires_grad and contents.requires_grad:
        _Storing.apply(tensor, contents)
        return tensor
    return tensor.copy_(contents)


# --- a part of memory is written ------------------------------------------------------------------
#
# Eager passes the gradient of the whole to the write, which changes it in the part that it writes.
# Without writes, the part has a gradient of its own, which is added to that of the whole. One of
# the two is minus zero in the part, and the other one around it, so their sum changes no bit.

PARTS = {view: scatter for scatter, view in SCATTERS.items() if view is not aten.as_strided.default}


class _PartToWrite(torch.autograd.Function):
    """A part of a tensor, as the operand of a call that writes it."""

    @staticmethod
    def forward(ctx: Any, view: OpOverload, whole: torch.Tensor, *args: Any) -> torch.Tensor:
        ctx.view, ctx.sizes, ctx.args = view, whole.shape, args
        part: torch.Tensor = view(whole, *args)
        return part

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        around = _minus_zero(gradient, ctx.sizes)
        whole = PARTS[ctx.view](around, gradient, *ctx.args)
        return None, whole, *(None for _ in ctx.args)


class _WithPart(torch.autograd.Function):
    """The scatter that stores the written part into the whole."""

    @staticmethod
    def forward(
        ctx: Any, view: OpOverload, whole: torch.Tensor, part: torch.Tensor, *args: Any
    ) -> torch.Tensor:
        ctx.view, ctx.args = view, args
        result: torch.Tensor = PARTS[view](whole, part, *args)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        # A copy, as in autograd (`CopySlices`): a view would keep the gradient of the whole alive.
        part = ctx.view(gradient, *ctx.args).clone(memory_format=torch.contiguous_format)
        around = PARTS[ctx.view](gradient, _minus_zero(part, part.shape), *ctx.args)
        return None, around, part, *(None for _ in ctx.args)


def part_to_write(view: OpOverload, whole: torch.Tensor, *args: Any) -> torch.Tensor:
    """A view of a part, one of `PARTS`, for a call that writes to it."""
    result: torch.Tensor = _PartToWrite.apply(view, whole, *args)
    return result


def with_written(
    view: OpOverload, whole: torch.Tensor, part: torch.Tensor, *args: Any
) -> torch.Tensor:
    """The whole after such a write."""
    result: torch.Tensor = _WithPart.apply(view, whole, part, *args)
    return result


def of_part(
    view: OpOverload,
    emit: Emitter,
    parent: Callable[[], fx.Node],
    new: fx.Node,
    args: tuple[Any, ...],
) -> fx.Node:
    """The inverse of one of `PARTS` in a graph that is differentiated later."""
    scatter = INVERSES[view](emit, parent, new, args)
    scatter.target, scatter.args = with_written, (view, *scatter.args)
    return scatter


def with_part(
    whole: torch.Tensor,
    part: torch.Tensor,
    sizes: Sequence[Any],
    strides: Sequence[Any],
    offset: Any = None,
) -> torch.Tensor:
    """`as_strided_scatter`, with the gradient of a write through `as_strided`.

    In torch 2.13, that operator has the gradient of the contents that it overwrites.
    """
    copy = whole.clone()
    copy.as_strided(sizes, strides, offset).copy_(part)
    return copy


def of_as_strided(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    """The inverse of `as_strided` in a graph that is differentiated later."""
    scatter = INVERSES[aten.as_strided.default](emit, parent, new, args)
    scatter.target = with_part
    return scatter


def refuse_lost_history(captured: fx.GraphModule, analysis: Analysis) -> None:
    """Raise `LostHistory` where memory has a history that no new value of its storage has."""
    dtypes: dict[int, set[torch.dtype]] = {}
    inputs: dict[int, list[fx.Node]] = {}
    recorded: set[int] = set()
    given: set[int] = set()  # the identities of inputs
    for node, effect in analysis.effects.items():
        has_gradient = node.meta.get(HAS_GRADIENT, False)
        _refuse_other_memory(node, analysis)
        if has_gradient and not effect.mutated_metadata.keys().isdisjoint(given):
            raise LostHistory(
                f"{node.format_node()} changes the metadata of an input with a gradient"
            )
        for geometry in effect.shows.values():
            dtypes.setdefault(geometry.storage, set()).add(geometry.dtype.to_real())
            if node.op in ("placeholder", "get_attr"):
                inputs.setdefault(geometry.storage, []).append(node)
                given |= effect.shows.keys()
            if has_gradient:
                recorded.add(geometry.storage)
    _refuse_slides(analysis, recorded)
    for storage in recorded & analysis.written:
        if any(dtype.is_floating_point and dtype.itemsize == 1 for dtype in dtypes[storage]):
            raise LostHistory("torch cannot add gradients of 8 bits, as those of writes are")
        if len(dtypes[storage]) > 1:
            raise LostHistory("memory with a gradient is written, and seen as another dtype")
        if len(inputs.get(storage, ())) > 1:
            names = " and ".join(str(node) for node in inputs[storage])
            raise LostHistory(f"{names} share memory, have gradients, and are written")


def repeats_element(tensor: torch.Tensor) -> bool:
    """True if a tensor shows one element as several, as `unfold` does; `expand` does not count."""
    kept = [dim for dim, stride in enumerate(tensor.stride()) if not known(stride == 0)]
    sizes, strides = [tensor.shape[dim] for dim in kept], [tensor.stride(dim) for dim in kept]
    return overlaps_itself(Region.of(tensor.as_strided(sizes, strides)))


def _refuse_slides(analysis: Analysis, recorded: set[int]) -> None:
    """Raise `LostHistory` for a write to one element as several: each would have its gradient."""
    for node in analysis.effects:
        if not isinstance(node.target, OpOverload):
            continue
        given = bind(node.target, node.args, node.kwargs)
        for operand in nodes_in([given.get(name) for name in facts(node.target).writes]):
            effect = analysis.effects[operand]
            shown = recorded & {geometry.storage for geometry in effect.shows.values()}
            if shown and any(map(repeats_element, tensors_in(effect.value))):
                raise LostHistory(f"{node.format_node()} writes one element as several")


def _refuse_other_memory(node: fx.Node, analysis: Analysis) -> None:
    """Raise `LostHistory` for a call after which a tensor shows memory without its history."""
    op = getattr(node.target, "overloadpacket", None)
    if op is aten.set_:
        if any(each.meta.get(HAS_GRADIENT) for each in (node, *node.all_input_nodes)):
            raise LostHistory(f"{node.format_node()} leaves a tensor its history in other memory")
    elif op is aten.as_strided and node.all_input_nodes[0].meta.get(HAS_GRADIENT):
        # In eager, memory that the operand does not show has no gradient.
        operand, result = (
            next(iter(analysis.effects[each].shows.values())).region
            for each in (node.all_input_nodes[0], node)
        )
        if not contains(operand, result):
            raise LostHistory(f"{node.format_node()} shows more than its operand")


def differentiable_form(op: OpOverload) -> OpOverload | None:
    """The functional form of a mutating operator, if autograd knows its gradient.

    For some random fills, autograd knows only the gradient in place, which is zero. Without a form,
    the operator is called on copies. Raises `LostHistory` if the gradient in place is another one.
    """
    if op in _OF_ITS_RESULT:
        raise LostHistory(f"in place, the gradient of {op} is computed from its result")
    return None if facts(op).random else functional_form(op)


# Rounds differently than from the operand (`elu_backward` in tools/autograd/derivatives.yaml).
_OF_ITS_RESULT = {aten.elu_.default, aten.celu_.default}

# Their results have no history. In place, the gradient of the overwritten contents is zero.
COMPARISONS = {
    getattr(packet, overload)
    for packet in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)
    for overload in packet.overloads()
}


def compared(op: OpOverload, old: torch.Tensor, *args: Any) -> torch.Tensor:
    """A comparison in place, in functional form."""
    new: torch.Tensor = op(old, *args)
    return overwriting(old, new.to(old.dtype)) if old.requires_grad else new
