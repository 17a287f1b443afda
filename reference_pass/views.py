"""Views and their inverses.

A view op shows part of a tensor, its *parent*. A store through the view changes the parent. The new
contents of the parent are the *inverse* of the view op, applied to the old contents and the new
value of the view. For most views the inverse is a scatter:

    view     v = select(p, dim, index)          new p = select_scatter(p, new v, dim, index)

For views that show all of the parent it is a view again, back to the shape of the parent.
`INVERSES` is the whole list. `VIEW_STEPS` reduces other view ops to steps that have an inverse. A
view through any other op is described by its geometry and regenerated with `as_strided`.

The first chapter has no inverse for `expand` in `VIEWS`, because one element would have two values.
But a program that is defined in eager writes the same value to all copies of an element (of
`expand`, `unfold`, `as_strided`), so there is an inverse: it stores that value once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.calls.regions import known
from aliasproof.reference_pass.calls.view_forms import (
    COMPOSITES,
    Arguments,
    ToSteps,
    ViewCall,
    ViewStep,
    as_itself,
)

ParentValue: TypeAlias = Callable[[], fx.Node]  # a function: not every inverse reads the parent
# (emitter, value of the parent, new value of the view, arguments of the view op) -> new parent
Inverse: TypeAlias = Callable[[Emitter, ParentValue, fx.Node, Arguments], fx.Node]


# --- inverses -------------------------------------------------------------------------------------


# Some inverses need only sizes of the parent, and some do not need it at all. A call of `parent`
# may emit calls that regenerate it, which dead code elimination then removes.
def _unchanged(emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments) -> fx.Node:
    return new


def _scatter(op: OpOverload) -> Inverse:
    return lambda emit, parent, new, args: emit.call(op, parent(), new, *args)


def _view_back(op: OpOverload) -> Inverse:
    return lambda emit, parent, new, args: emit.view(op, new, *args)


def _computed(op: OpOverload) -> Inverse:
    return lambda emit, parent, new, args: emit.call(op, new)


def _of_view(emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments) -> fx.Node:
    return emit.view(aten.view.default, new, list(parent().meta["val"].shape))


def _of_permute(emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments) -> fx.Node:
    (dims,) = args
    rank = len(dims)
    positive = [dim % rank for dim in dims]
    return emit.view(aten.permute.default, new, [positive.index(dim) for dim in range(rank)])


def _of_squeeze(emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments) -> fx.Node:
    shape = parent().meta["val"].shape
    rank = max(len(shape), 1)
    named = range(len(shape)) if not args else [args[0]] if isinstance(args[0], int) else args[0]
    # In ascending order, so that each dimension has its index in the parent when it is added.
    for dim in sorted(dim % rank for dim in named):
        if dim < len(shape) and known(shape[dim] == 1):
            new = emit.view(aten.unsqueeze.default, new, dim)
    return new


def _of_expand(emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments) -> fx.Node:
    shape = parent().meta["val"].shape
    # All copies of an element got the same value, so the first one is taken.
    for _ in range(new.meta["val"].dim() - len(shape)):
        new = emit.view(aten.select.int, new, 0, 0)
    for dim, size in enumerate(shape):
        if known(size == 1) and not known(new.meta["val"].shape[dim] == 1):
            new = emit.view(aten.slice.Tensor, new, dim, 0, 1)
    return new


def _of_unfold(emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments) -> fx.Node:
    dim, window, step = args
    whole = parent()
    rank = whole.meta["val"].dim()
    if rank == 0:
        return emit.view(aten.select.int, new, 0, 0)
    dim %= rank
    count = new.meta["val"].shape[dim]
    # There are two ways to cover all windows with slices of the parent. The one with fewer scatters
    # is taken. With a symbolic number of windows, only the first works.
    if not isinstance(count, int) or window <= count:
        for k in range(window):  # the k-th elements of all windows are one strided slice
            piece = emit.view(aten.select.int, new, -1, k)
            end = k + (count - 1) * step + 1
            whole = emit.call(aten.slice_scatter.default, whole, piece, dim, k, end, step)
        return whole
    for k in range(count):  # each window is one slice
        # A window has its elements in the last dimension; the slice has them in `dim`.
        piece = emit.view(aten.select.int, new, dim, k)
        order = [*range(dim), rank - 1, *range(dim, rank - 1)]
        piece = emit.view(aten.permute.default, piece, order)
        bounds = k * step, k * step + window
        whole = emit.call(aten.slice_scatter.default, whole, piece, dim, *bounds)
    return whole


def _of_as_strided(emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments) -> fx.Node:
    sizes, strides, offset = args
    # A stride of zero shows one element again and again: the first one is taken.
    for dim in reversed(range(len(sizes))):
        if known(strides[dim] == 0):
            new = emit.view(aten.select.int, new, dim, 0)
    kept = [dim for dim in range(len(sizes)) if not known(strides[dim] == 0)]
    layout = [sizes[dim] for dim in kept], [strides[dim] for dim in kept], offset
    return emit.call(aten.as_strided_scatter.default, parent(), new, *layout)


# The bytes stay as they are. `_to_copy` would convert the values instead.
def _of_view_dtype(emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments) -> fx.Node:
    return emit.view(aten.view.dtype, new, parent().meta["val"].dtype)


INVERSES: dict[OpOverload, Inverse] = {
    aten.alias.default: _unchanged,
    aten.detach.default: _unchanged,
    aten.view.default: _of_view,
    aten.t.default: _view_back(aten.t.default),
    aten.transpose.int: _view_back(aten.transpose.int),
    aten.permute.default: _of_permute,
    aten.select.int: _scatter(aten.select_scatter.default),
    aten.slice.Tensor: _scatter(aten.slice_scatter.default),
    aten.diagonal.default: _scatter(aten.diagonal_scatter.default),
    aten.squeeze.default: _of_squeeze,
    aten.squeeze.dim: _of_squeeze,
    aten.squeeze.dims: _of_squeeze,
    aten.unsqueeze.default: _view_back(aten.squeeze.dim),
    aten.expand.default: _of_expand,
    aten.unfold.default: _of_unfold,
    aten.as_strided.default: _of_as_strided,
    aten.view.dtype: _of_view_dtype,
    aten.view_as_real.default: _view_back(aten.view_as_complex.default),
    aten.view_as_complex.default: _view_back(aten.view_as_real.default),
    # A base has no lazy bits, so these two compute the values that its memory has.
    aten._conj.default: _computed(aten._conj_physical.default),
    aten._neg_view.default: _computed(aten.neg.default),
}


# --- view ops as steps ----------------------------------------------------------------------------

# By view op. An op that is not in the table has no steps, such as `as_strided`, which does not
# depend on the views before it, only on the storage.
VIEW_STEPS: dict[OpOverload, ToSteps] = {
    **{op: as_itself for op in INVERSES if op is not aten.as_strided.default},
    **COMPOSITES,
}


def view_steps(call: ViewCall, table: Mapping[Any, ToSteps]) -> list[ViewStep] | None:
    """A view op as steps that have inverses, by `VIEW_STEPS`; None if there are none."""
    to_steps = table.get(call.op)
    return None if to_steps is None else to_steps(call)
