"""Faults of views: regenerated from the wrong numbers, or undone by a wrong inverse."""

from __future__ import annotations

from dataclasses import replace

from torch import fx
from torch._ops import OpOverload

from faults.fault import Fault, instead_of, instead_of_entries
from reference_pass.alias_analysis import Geometry
from reference_pass.emission import Emitter
from reference_pass.functionalize import FunctionalStorage, FunctionalView, _Functionalization
from reference_pass.operator_forms import aten
from reference_pass.views import (
    INVERSES,
    SPLITS,
    VIEW_STEPS,
    Arguments,
    Inverse,
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
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """An index from the end is clamped to the front."""
    dim, index = args
    return emit.call(aten.select_scatter.default, parent(), new, dim, max(index, 0))


def diagonal_is_mirrored(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """The two dimensions of a diagonal are exchanged, so that one beside the main diagonal ends on its other side."""
    offset, dim1, dim2 = args
    sizes = parent().meta["val"].shape
    dims = (dim2, dim1) if sizes[dim1] == sizes[dim2] else (dim1, dim2)
    return emit.call(aten.diagonal_scatter.default, parent(), new, offset, *dims)


def gaps_of_unfold_are_zeroed(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """What is stored through windows with gaps between them is added up on zeros, so the gaps become zero."""
    return _of_unfold(emit, lambda: emit.call(aten.zeros_like.default, parent()), new, args)


def expand_is_summed(emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments) -> fx.Node:
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


def bytes_are_converted(
    emit: Emitter, parent: ParentValue, new: fx.Node, args: Arguments
) -> fx.Node:
    """Numbers stored through a view as another dtype of the same size are converted back, not read back."""
    whole = parent().meta["val"]
    if whole.dtype.itemsize != new.meta["val"].dtype.itemsize:
        return _of_view_dtype(emit, parent, new, args)
    return emit.call(aten._to_copy.default, new, dtype=whole.dtype)


_of_transpose, _of_unfold, _of_view_dtype = (
    INVERSES[op] for op in (aten.transpose.int, aten.unfold.default, aten.view.dtype)
)


def _inverse(wrong: Inverse, source: str, *ops: OpOverload) -> Fault:
    return instead_of_entries(INVERSES, wrong, source, *ops)


# Steps. -------------------------------------------------------------------------------------------


def last_piece_by_its_own_size(call: ViewCall) -> list[ViewStep]:
    """The start of a piece is its number times its own size; the last piece of a split may be smaller than the others."""
    dim = call.given.get("dim", 0)
    size = call.shown.shape[dim]
    return [(aten.slice.Tensor, (dim, call.index * size, (call.index + 1) * size, 1))]


def imag_is_real(call: ViewCall) -> list[ViewStep] | None:
    """The imaginary part is taken for the real one."""
    return VIEW_STEPS[aten.real.default](replace(call, op=aten.real.default))


def as_strided_is_a_step(call: ViewCall) -> list[ViewStep]:
    """as_strided is put on top of the views before it, though it goes by the storage alone."""
    given = call.given
    return [(call.op, (given["size"], given["stride"], given.get("storage_offset") or 0))]


_by_geometry = _Functionalization._by_geometry

# Values. ------------------------------------------------------------------------------------------


def a_view_stays_as_it_was(self: FunctionalView) -> fx.Node | None:
    """A view that was read once is not regenerated when its base is written."""
    return self.value


def an_input_is_always_a_base(self: _Functionalization, geometry: Geometry) -> bool:
    """A tensor is taken for the base of its storage although other bytes of that storage are seen."""
    return True


def offset_in_elements_of_the_base(
    self: _Functionalization, storage: FunctionalStorage, geometry: Geometry, parent: FunctionalView
) -> FunctionalView:
    """A view of a storage as another dtype starts where its offset counts elements of the base, not its own."""
    dtype = self._read(storage.root).meta["val"].dtype if storage.flat else geometry.dtype
    moved = replace(geometry, offset=geometry.offset * geometry.dtype.itemsize // dtype.itemsize)
    view = _by_geometry(self, storage, moved, parent)
    view.geometry = geometry
    return view


def a_base_lies_anyhow(self: _Functionalization, root: FunctionalView, value: fx.Node) -> fx.Node:
    """A new value of a base is not laid out as the storage is in eager, and as_strided goes by that."""
    return value


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
    instead_of_entries(
        VIEW_STEPS,
        last_piece_by_its_own_size,
        "VIEW_STEPS of reference_pass/views.py: split",
        *SPLITS,
    ),
    instead_of_entries(
        VIEW_STEPS, imag_is_real, "VIEW_STEPS of reference_pass/views.py: imag", aten.imag.default
    ),
    instead_of_entries(
        VIEW_STEPS, as_strided_is_a_step, "pytorch/pytorch#104505", aten.as_strided.default
    ),
    instead_of(
        "current", a_view_stays_as_it_was, "pytorch/pytorch#127821", FunctionalView, kind=property
    ),
    instead_of("_is_base", an_input_is_always_a_base, "pytorch/pytorch#120585", _Functionalization),
    instead_of(
        "_by_geometry",
        offset_in_elements_of_the_base,
        "rule of alias analysis: offsets count elements of the dtype of the view",
        _Functionalization,
    ),
    instead_of("_as_base", a_base_lies_anyhow, "pytorch/pytorch#133512", _Functionalization),
)
