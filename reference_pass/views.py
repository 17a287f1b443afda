"""Views and their inverses.

A view op shows part of a tensor, its *parent*. If new numbers are stored through the view, the
parent changes: its new contents are the *inverse* of the view op, applied to the old contents and
the new numbers. Mostly that is a scatter:

    view     v = select(p, dim, index)          new p = select_scatter(p, new v, dim, index)

and for views that show everything it is a view again, back to the form of the parent. `INVERSES` is
the whole list, one entry a view op. A view through any other op is described by its geometry and
regenerated with `as_strided`.

Where a view shows an element several times (`expand`, `unfold`, `as_strided`), a program that means
something stores the same number in all of these places. So it is enough to store it once, and that
is what these inverses do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from reference_pass.emission import Emitter
from reference_pass.operator_forms import aten
from reference_pass.regions import known

Step: TypeAlias = tuple[OpOverload, tuple[Any, ...]]  # a view op and its arguments after the tensor
# (emitter, the parent's value if asked for, the new value of the view, the view op's other
# arguments) -> new parent
Inverse: TypeAlias = Callable[[Emitter, Callable[[], fx.Node], fx.Node, tuple[Any, ...]], fx.Node]


def _rank(value: fx.Node) -> int:
    rank: int = value.meta["val"].dim()
    return rank


def _unchanged(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return new


def _of_view(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.view(aten.view.default, new, list(parent().meta["val"].shape))


def _of_t(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.view(aten.t.default, new)


def _of_transpose(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.view(aten.transpose.int, new, *args)


def _of_permute(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    (dims,) = args
    rank = len(dims)
    return emit.view(
        aten.permute.default,
        new,
        [[each % rank for each in dims].index(dim) for dim in range(rank)],
    )


def _of_select(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.call(aten.select_scatter.default, parent(), new, *args)


def _of_slice(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.call(aten.slice_scatter.default, parent(), new, *args)


def _of_diagonal(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.call(aten.diagonal_scatter.default, parent(), new, *args)


def _of_squeeze(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    shape = parent().meta["val"].shape
    rank = max(len(shape), 1)
    named = range(len(shape)) if not args else [args[0]] if isinstance(args[0], int) else args[0]
    for dim in sorted(each % rank for each in named):
        if dim < len(shape) and known(shape[dim] == 1):
            new = emit.view(aten.unsqueeze.default, new, dim)
    return new


def _of_unsqueeze(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.view(aten.squeeze.dim, new, *args)


def _of_expand(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    shape = parent().meta["val"].shape
    for _ in range(_rank(new) - len(shape)):
        new = emit.view(aten.select.int, new, 0, 0)
    for dim, size in enumerate(shape):
        if known(size == 1) and not known(new.meta["val"].shape[dim] == 1):
            new = emit.view(aten.slice.Tensor, new, dim, 0, 1)
    return new


def _of_unfold(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    dim, window, step = args
    whole = parent()
    rank = _rank(whole)
    if rank == 0:
        return emit.view(aten.select.int, new, 0, 0)
    dim %= rank
    count = new.meta["val"].shape[dim]
    if (
        not isinstance(count, int) or window <= count
    ):  # the k-th elements of all windows lie in one slice of the parent
        for k in range(window):
            piece = emit.view(aten.select.int, new, -1, k)
            whole = emit.call(
                aten.slice_scatter.default, whole, piece, dim, k, k + (count - 1) * step + 1, step
            )
        return whole
    for k in range(count):  # each window is a slice of the parent
        piece = emit.view(aten.select.int, new, dim, k)
        order = [*range(dim), rank - 1, *range(dim, rank - 1)]
        piece = emit.view(aten.permute.default, piece, order)
        whole = emit.call(
            aten.slice_scatter.default, whole, piece, dim, k * step, k * step + window
        )
    return whole


def _of_as_strided(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    sizes, strides, offset = args
    for dim in reversed(range(len(sizes))):  # the same element again and again: the first will do
        if known(strides[dim] == 0):
            new = emit.view(aten.select.int, new, dim, 0)
    kept = [(n, s) for n, s in zip(sizes, strides, strict=True) if not known(s == 0)]
    return emit.call(
        aten.as_strided_scatter.default,
        parent(),
        new,
        [n for n, _ in kept],
        [s for _, s in kept],
        offset,
    )


def _of_view_dtype(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.view(aten.view.dtype, new, parent().meta["val"].dtype)


def _of_view_as_real(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.view(aten.view_as_complex.default, new)


def _of_view_as_complex(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.view(aten.view_as_real.default, new)


def _of_conj(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.call(aten._conj_physical.default, new)


def _of_neg_view(
    emit: Emitter, parent: Callable[[], fx.Node], new: fx.Node, args: tuple[Any, ...]
) -> fx.Node:
    return emit.call(aten.neg.default, new)


INVERSES: dict[OpOverload, Inverse] = {
    aten.alias.default: _unchanged,
    aten.detach.default: _unchanged,
    aten.view.default: _of_view,
    aten.t.default: _of_t,
    aten.transpose.int: _of_transpose,
    aten.permute.default: _of_permute,
    aten.select.int: _of_select,
    aten.slice.Tensor: _of_slice,
    aten.diagonal.default: _of_diagonal,
    aten.squeeze.default: _of_squeeze,
    aten.squeeze.dim: _of_squeeze,
    aten.squeeze.dims: _of_squeeze,
    aten.unsqueeze.default: _of_unsqueeze,
    aten.expand.default: _of_expand,
    aten.unfold.default: _of_unfold,
    aten.as_strided.default: _of_as_strided,
    aten.view.dtype: _of_view_dtype,
    aten.view_as_real.default: _of_view_as_real,
    aten.view_as_complex.default: _of_view_as_complex,
    aten._conj.default: _of_conj,
    aten._neg_view.default: _of_neg_view,
}


# --- other view ops, as steps of the ones above ---------------------------------------------------


def steps(
    op: Any,
    given: dict[str, Any],
    shown: torch.Tensor,
    index: int,
    before: Sequence[torch.Tensor],
    conj: bool = False,
) -> list[Step] | None:
    """A view op as steps that have inverses; None if it is not known how.

    `given` are its arguments by name but the tensor, `shown` the view, `index` its place among
    several results and `before` the results in front of it. `conj` says that the tensor has the
    lazy conjugate bit.
    """
    if not isinstance(op, OpOverload):
        return None
    if op in INVERSES and op not in (aten.as_strided.default, aten.squeeze.default):
        wanted = [each for each in op._schema.arguments[1:] if not each.kwarg_only]
        return [(op, tuple(given.get(each.name, each.default_value) for each in wanted))]
    if op is aten.squeeze.default:
        return [(op, ())]
    if op in _RESHAPES:
        return [(aten.view.default, (list(shown.shape),))]
    if op in _SPLITS:
        sizes = [each.shape[given.get("dim", 0)] for each in (*before, shown)]
        return [(aten.slice.Tensor, (given.get("dim", 0), sum(sizes[:-1]), sum(sizes), 1))]
    if op is aten.unbind.int:
        return [(aten.select.int, (given.get("dim", 0), index))]
    if op is aten.narrow.default and all(
        isinstance(given[each], int) for each in ("start", "length")
    ):
        start = given["start"] if given["start"] >= 0 else None
        if start is not None:
            return [(aten.slice.Tensor, (given["dim"], start, start + given["length"], 1))]
    if op in (aten.real.default, aten.imag.default):
        part: list[Step] = [
            (aten.view_as_real.default, ()),
            (aten.select.int, (-1, int(op is aten.imag.default))),
        ]
        if not conj:
            return part
        return [
            (aten._conj.default, ()),
            *part,
            *([(aten._neg_view.default, ())] if op is aten.imag.default else []),
        ]
    return None


_RESHAPES = {
    aten._unsafe_view.default,
    aten._reshape_alias.default,
    aten.reshape.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.view_as.default,
    aten.reshape_as.default,
    aten.contiguous.default,
    aten.ravel.default,
}
_SPLITS = {
    aten.split.Tensor,
    aten.split.sizes,
    aten.split_with_sizes.default,
    aten.chunk.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.unsafe_chunk.default,
    aten.tensor_split.sections,
    aten.tensor_split.indices,
}
