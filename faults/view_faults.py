"""Faults of views: regenerated from the wrong numbers, or undone by a wrong inverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from faults.fault import Fault, by_rules
from reference_pass import views
from reference_pass.alias_analysis import Geometry
from reference_pass.bases import StorageUses
from reference_pass.emission import Emitter
from reference_pass.functionalize import RULES
from reference_pass.operator_forms import aten
from reference_pass.regions import Size
from reference_pass.views import INVERSES, Inverse, Step

Parent = Callable[[], fx.Node]
Arguments = tuple[Any, ...]

# Inverses. ----------------------------------------------------------------------------------------


def transpose_is_not_undone(
    emit: Emitter, parent: Parent, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of a transpose is left out where the sizes fit without it."""
    fits = new.meta["val"].shape == parent().meta["val"].shape
    return new if fits else _of_transpose(emit, parent, new, args)


def slice_loses_its_start(emit: Emitter, parent: Parent, new: fx.Node, args: Arguments) -> fx.Node:
    """What is stored through a slice goes to the start of its base."""
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


def select_counts_from_the_front(
    emit: Emitter, parent: Parent, new: fx.Node, args: Arguments
) -> fx.Node:
    """An index from the end is clamped to the front."""
    dim, index = args
    return emit.call(aten.select_scatter.default, parent(), new, dim, max(index, 0))


def diagonal_is_mirrored(emit: Emitter, parent: Parent, new: fx.Node, args: Arguments) -> fx.Node:
    """The two dimensions of a diagonal are exchanged, so that one beside the main diagonal ends on its other side."""
    offset, dim1, dim2 = args
    sizes = parent().meta["val"].shape
    dims = (dim2, dim1) if sizes[dim1] == sizes[dim2] else (dim1, dim2)
    return emit.call(aten.diagonal_scatter.default, parent(), new, offset, *dims)


def gaps_of_unfold_are_zeroed(
    emit: Emitter, parent: Parent, new: fx.Node, args: Arguments
) -> fx.Node:
    """What is stored through windows with gaps between them is added up on zeros, so the gaps become zero."""
    return _of_unfold(emit, lambda: emit.call(aten.zeros_like.default, parent()), new, args)


def expand_is_summed(emit: Emitter, parent: Parent, new: fx.Node, args: Arguments) -> fx.Node:
    """The copies of an element are added up, as the backward of expand does."""
    shape = parent().meta["val"].shape
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


def bytes_are_converted(emit: Emitter, parent: Parent, new: fx.Node, args: Arguments) -> fx.Node:
    """Numbers stored through a view as another dtype of the same size are converted back, not read back."""
    whole = parent().meta["val"]
    if whole.dtype.itemsize != new.meta["val"].dtype.itemsize:
        return _of_view_dtype(emit, parent, new, args)
    return emit.call(aten._to_copy.default, new, dtype=whole.dtype)


_of_transpose, _of_unfold, _of_view_dtype = (
    views._of_transpose,
    views._of_unfold,
    views._of_view_dtype,
)


def _inverse(wrong: Inverse, source: str, *ops: OpOverload) -> Fault:
    return by_rules(wrong, source, replace(RULES, inverses=INVERSES | dict.fromkeys(ops, wrong)))


# Steps. -------------------------------------------------------------------------------------------


def last_piece_by_its_own_size(
    op: Any,
    given: dict[str, Any],
    shown: torch.Tensor,
    index: int,
    before: Sequence[torch.Tensor],
    conj: bool,
) -> list[Step] | None:
    """The start of a piece is its number times its own size; the last piece of a split may be smaller than the others."""
    if op in views._SPLITS:
        dim = given.get("dim", 0)
        size = shown.shape[dim]
        return [(aten.slice.Tensor, (dim, index * size, (index + 1) * size, 1))]
    return _steps(op, given, shown, index, before, conj)


def imag_is_real(
    op: Any,
    given: dict[str, Any],
    shown: torch.Tensor,
    index: int,
    before: Sequence[torch.Tensor],
    conj: bool,
) -> list[Step] | None:
    """The imaginary part is taken for the real one."""
    real = aten.real.default if op is aten.imag.default else op
    return _steps(real, given, shown, index, before, conj)


def as_strided_is_a_step(
    op: Any,
    given: dict[str, Any],
    shown: torch.Tensor,
    index: int,
    before: Sequence[torch.Tensor],
    conj: bool,
) -> list[Step] | None:
    """as_strided is put on top of the views before it, though it goes by the storage alone."""
    if op is aten.as_strided.default:
        return [(op, (given["size"], given["stride"], given.get("storage_offset") or 0))]
    return _steps(op, given, shown, index, before, conj)


_steps = views.steps

# Values. ------------------------------------------------------------------------------------------


def a_view_stays_as_it_was(noted: int, version: int) -> bool:
    """A view that was read once is not regenerated when its base is written."""
    return True


def an_input_is_always_a_base(uses: StorageUses, geometry: Geometry) -> bool:
    """A tensor is taken for the base of its storage although other bytes of that storage are seen."""
    return True


def offset_in_elements_of_the_base(geometry: Geometry, start: torch.dtype) -> Size:
    """A view of a storage as another dtype starts where its offset counts elements of the base, not its own."""
    return geometry.offset * geometry.dtype.itemsize // start.itemsize


def a_base_lies_anyhow(geometry: Geometry | None, value: torch.Tensor) -> Sequence[Size]:
    """A new value of a base is not laid out as the storage is in eager, and as_strided goes by that."""
    return value.stride()


FAULTS: tuple[Fault, ...] = (
    _inverse(
        transpose_is_not_undone,
        "INVERSES of reference_pass/views.py: t, transpose",
        aten.t.default,
        aten.transpose.int,
    ),
    _inverse(
        slice_loses_its_start, "INVERSES of reference_pass/views.py: slice", aten.slice.Tensor
    ),
    _inverse(
        select_counts_from_the_front, "INVERSES of reference_pass/views.py: select", aten.select.int
    ),
    _inverse(
        diagonal_is_mirrored, "INVERSES of reference_pass/views.py: diagonal", aten.diagonal.default
    ),
    _inverse(gaps_of_unfold_are_zeroed, "pytorch/pytorch#198102", aten.unfold.default),
    _inverse(expand_is_summed, "pytorch/pytorch#197448", aten.expand.default),
    _inverse(
        bytes_are_converted, "INVERSES of reference_pass/views.py: view.dtype", aten.view.dtype
    ),
    by_rules(
        last_piece_by_its_own_size,
        "steps of reference_pass/views.py: split",
        replace(RULES, steps=last_piece_by_its_own_size),
    ),
    by_rules(
        imag_is_real, "steps of reference_pass/views.py: imag", replace(RULES, steps=imag_is_real)
    ),
    by_rules(
        as_strided_is_a_step, "pytorch/pytorch#104505", replace(RULES, steps=as_strided_is_a_step)
    ),
    by_rules(
        a_view_stays_as_it_was,
        "pytorch/pytorch#127821",
        replace(RULES, is_current=a_view_stays_as_it_was),
    ),
    by_rules(
        an_input_is_always_a_base,
        "pytorch/pytorch#120585",
        replace(RULES, is_base=an_input_is_always_a_base),
    ),
    by_rules(
        offset_in_elements_of_the_base,
        "rule of alias analysis: offsets count elements of the dtype of the view",
        replace(RULES, as_strided_offset=offset_in_elements_of_the_base),
    ),
    by_rules(
        a_base_lies_anyhow,
        "pytorch/pytorch#133512",
        replace(RULES, base_strides=a_base_lies_anyhow),
    ),
)
