"""Faults of views: regenerated from the wrong base, or written through a wrong inverse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import fx

from aliasproof.faults.fault import Fault, by_rule, by_table
from aliasproof.reference_pass import views
from aliasproof.reference_pass.bases import StorageUses
from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.regions import Size
from aliasproof.reference_pass.views import (
    SPLITS,
    VIEW_STEPS,
    Arguments,
    ParentValue,
    ViewCall,
    ViewStep,
)

# Inverses. ----------------------------------------------------------------------------------------


def transpose_is_not_undone(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of a transpose is left out where the sizes fit without it."""
    fits = new.meta["val"].shape == parent().meta["val"].shape
    return new if fits else _of_transpose(emit, parent, new, args)


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


def negative_index_is_clamped(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of select clamps a negative index to zero."""
    dim, index = args
    return emit.call(aten.select_scatter.default, parent(), new, dim, max(index, 0))


def diagonal_is_mirrored(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of diagonal swaps the two dimensions, so its offset changes direction."""
    offset, dim1, dim2 = args
    sizes = parent().meta["val"].shape
    # In a base that is not square, the result would have another size.
    dims = (dim2, dim1) if sizes[dim1] == sizes[dim2] else (dim1, dim2)
    return emit.call(aten.diagonal_scatter.default, parent(), new, offset, *dims)


def gaps_of_unfold_are_zeroed(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of unfold starts from zeros, so the gaps between the windows become zero."""
    return _of_unfold(emit, lambda: emit.call(aten.zeros_like.default, parent()), new, args)


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


def write_is_not_conjugated(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """A write through a view with the lazy conjugate bit stores what the view shows."""
    return new


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


_of_transpose, _of_unfold, _of_view_dtype = (
    views._of_transpose,
    views._of_unfold,
    views._of_view_dtype,
)


# Steps. -------------------------------------------------------------------------------------------


def last_piece_starts_too_early(call: ViewCall) -> list[ViewStep]:
    """A split piece starts at its index times its own size, also the smaller last piece."""
    dim = call.given.get("dim", 0)
    size = call.sizes[dim]
    return [(aten.slice.Tensor, (dim, call.index * size, (call.index + 1) * size, 1))]


def imag_is_real(call: ViewCall) -> list[ViewStep] | None:
    """A view of the imaginary part is regenerated as a view of the real part."""
    return VIEW_STEPS[aten.real.default](replace(call, op=aten.real.default))


def conjugate_bit_is_lost(call: ViewCall) -> list[ViewStep]:
    """A view with the lazy conjugate bit is regenerated without it."""
    return [(aten.alias.default, ())]


def negative_bit_is_lost(call: ViewCall) -> list[ViewStep]:
    """A view with the lazy negative bit is regenerated without it."""
    return [(aten.alias.default, ())]


def as_strided_is_a_step(call: ViewCall) -> list[ViewStep]:
    """as_strided is applied to the view before it, not to the base that has the whole storage."""
    given = call.given
    return [(call.op, (given["size"], given["stride"], given.get("storage_offset") or 0))]


# Bases. -------------------------------------------------------------------------------------------


def view_is_not_regenerated(noted: int, version: int) -> bool:
    """A view that was read before is not regenerated after a write to its base."""
    return True


def tensor_is_always_the_base(uses: StorageUses, geometry: Geometry) -> bool:
    """A tensor becomes the base of its storage although other views show other bytes of it."""
    return True


def offset_in_elements_of_the_base(geometry: Geometry, start: torch.dtype) -> Size:
    """The offset of a view of another dtype is counted in elements of the base, not of the view."""
    return geometry.offset * geometry.dtype.itemsize // start.itemsize


def base_has_another_layout(geometry: Geometry | None, value: torch.Tensor) -> Sequence[Size]:
    """A new value of a base does not get the strides that the base has in eager."""
    return value.stride()


FAULTS: tuple[Fault, ...] = (
    by_table(
        "inverses",
        transpose_is_not_undone,
        "INVERSES of reference_pass/views.py: t, transpose",
        aten.t.default,
        aten.transpose.int,
    ),
    by_table(
        "inverses",
        slice_loses_its_start,
        "INVERSES of reference_pass/views.py: slice",
        aten.slice.Tensor,
    ),
    by_table(
        "inverses",
        negative_index_is_clamped,
        "INVERSES of reference_pass/views.py: select",
        aten.select.int,
    ),
    by_table(
        "inverses",
        diagonal_is_mirrored,
        "INVERSES of reference_pass/views.py: diagonal",
        aten.diagonal.default,
    ),
    by_table("inverses", gaps_of_unfold_are_zeroed, "pytorch/pytorch#198102", aten.unfold.default),
    by_table("inverses", expand_is_summed, "pytorch/pytorch#197448", aten.expand.default),
    by_table(
        "inverses",
        bytes_are_converted,
        "INVERSES of reference_pass/views.py: view.dtype",
        aten.view.dtype,
    ),
    by_table(
        "view_steps",
        last_piece_starts_too_early,
        "VIEW_STEPS of reference_pass/views.py: split",
        *SPLITS,
    ),
    by_table(
        "view_steps",
        imag_is_real,
        "VIEW_STEPS of reference_pass/views.py: imag",
        aten.imag.default,
    ),
    by_table(
        "inverses",
        write_is_not_conjugated,
        "INVERSES of reference_pass/views.py: _conj",
        aten._conj.default,
    ),
    by_table(
        "view_steps",
        conjugate_bit_is_lost,
        "VIEW_STEPS of reference_pass/views.py: _conj",
        aten._conj.default,
    ),
    by_table(
        "view_steps",
        negative_bit_is_lost,
        "VIEW_STEPS of reference_pass/views.py: _neg_view",
        aten._neg_view.default,
    ),
    by_table("view_steps", as_strided_is_a_step, "pytorch/pytorch#104505", aten.as_strided.default),
    by_rule("is_current", view_is_not_regenerated, "pytorch/pytorch#127821"),
    by_rule("is_base", tensor_is_always_the_base, "pytorch/pytorch#120585"),
    by_rule(
        "as_strided_offset",
        offset_in_elements_of_the_base,
        "rule of alias analysis: offsets are in elements of the dtype of the view",
    ),
    by_rule("base_strides", base_has_another_layout, "pytorch/pytorch#133512"),
)
