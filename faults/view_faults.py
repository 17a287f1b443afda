"""Faults of views: regenerated from the wrong base, or written through a wrong inverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._ops import OpOverload

from faults.fault import Fault, Passes, fault, instead_of, require_same_parameters
from reference_pass import views
from reference_pass.alias_analysis import Geometry
from reference_pass.emission import Emitter
from reference_pass.functionalize import FunctionalStorage, FunctionalView, _Functionalization
from reference_pass.operator_forms import aten
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
    emit: Emitter, parent: Parent, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of select clamps a negative index to zero."""
    dim, index = args
    return emit.call(aten.select_scatter.default, parent(), new, dim, max(index, 0))


def diagonal_is_mirrored(emit: Emitter, parent: Parent, new: fx.Node, args: Arguments) -> fx.Node:
    """The inverse of diagonal swaps the two dimensions, so its offset changes direction."""
    offset, dim1, dim2 = args
    sizes = parent().meta["val"].shape
    # In a base that is not square, the result would have another size.
    dims = (dim2, dim1) if sizes[dim1] == sizes[dim2] else (dim1, dim2)
    return emit.call(aten.diagonal_scatter.default, parent(), new, offset, *dims)


def gaps_of_unfold_are_zeroed(
    emit: Emitter, parent: Parent, new: fx.Node, args: Arguments
) -> fx.Node:
    """The inverse of unfold starts from zeros, so the gaps between the windows become zero."""
    return _of_unfold(emit, lambda: emit.call(aten.zeros_like.default, parent()), new, args)


def expand_is_summed(emit: Emitter, parent: Parent, new: fx.Node, args: Arguments) -> fx.Node:
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


def bytes_are_converted(emit: Emitter, parent: Parent, new: fx.Node, args: Arguments) -> fx.Node:
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


def _inverse(wrong: Inverse, source: str, *ops: OpOverload) -> Fault:
    for op in ops:
        require_same_parameters(wrong, INVERSES[op])

    def replaced() -> AbstractContextManager[object]:
        return mock.patch.dict(INVERSES, dict.fromkeys(ops, wrong))

    return fault(wrong, source, Passes(within=replaced))


# Steps. -------------------------------------------------------------------------------------------


def last_piece_starts_too_early(
    op: Any,
    given: dict[str, Any],
    shown: torch.Tensor,
    index: int,
    before: Sequence[torch.Tensor],
    conj: bool = False,
) -> list[Step] | None:
    """A split piece starts at its index times its own size, also the smaller last piece."""
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
    conj: bool = False,
) -> list[Step] | None:
    """A view of the imaginary part is regenerated as a view of the real part."""
    part = aten.real.default if op is aten.imag.default else op
    return _steps(part, given, shown, index, before, conj)


def as_strided_is_a_step(
    op: Any,
    given: dict[str, Any],
    shown: torch.Tensor,
    index: int,
    before: Sequence[torch.Tensor],
    conj: bool = False,
) -> list[Step] | None:
    """as_strided is applied to the view before it, not to the base that has the whole storage."""
    if op is aten.as_strided.default:
        return [(op, (given["size"], given["stride"], given.get("storage_offset") or 0))]
    return _steps(op, given, shown, index, before, conj)


_steps, _by_geometry = views.steps, _Functionalization._by_geometry

# Bases. -------------------------------------------------------------------------------------------


def view_is_not_regenerated(self: FunctionalView) -> fx.Node | None:
    """A view that was read before is not regenerated after a write to its base."""
    return self.value


def tensor_is_always_the_base(self: _Functionalization, geometry: Geometry) -> bool:
    """A tensor becomes the base of its storage although other views show other bytes of it."""
    return True


def offset_in_elements_of_the_base(
    self: _Functionalization, storage: FunctionalStorage, geometry: Geometry, parent: FunctionalView
) -> FunctionalView:
    """The offset of a view of another dtype is counted in elements of the base, not of the view."""
    dtype = self._read(storage.root).meta["val"].dtype if storage.flat else geometry.dtype
    moved = replace(geometry, offset=geometry.offset * geometry.dtype.itemsize // dtype.itemsize)
    view = _by_geometry(self, storage, moved, parent)
    view.geometry = geometry
    return view


def base_has_another_layout(
    self: _Functionalization, root: FunctionalView, value: fx.Node
) -> fx.Node:
    """A new value of a base does not get the strides that the base has in eager."""
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
        negative_index_is_clamped, "INVERSES of reference_pass/views.py: select", aten.select.int
    ),
    _inverse(
        diagonal_is_mirrored, "INVERSES of reference_pass/views.py: diagonal", aten.diagonal.default
    ),
    _inverse(gaps_of_unfold_are_zeroed, "pytorch/pytorch#198102", aten.unfold.default),
    _inverse(expand_is_summed, "pytorch/pytorch#197448", aten.expand.default),
    _inverse(
        bytes_are_converted, "INVERSES of reference_pass/views.py: view.dtype", aten.view.dtype
    ),
    instead_of(
        "steps",
        last_piece_starts_too_early,
        "steps of reference_pass/views.py: split",
        "functionalize",
    ),
    instead_of("steps", imag_is_real, "steps of reference_pass/views.py: imag", "functionalize"),
    instead_of("steps", as_strided_is_a_step, "pytorch/pytorch#104505", "functionalize"),
    instead_of("current", view_is_not_regenerated, "pytorch/pytorch#127821", FunctionalView),
    instead_of("_is_base", tensor_is_always_the_base, "pytorch/pytorch#120585", _Functionalization),
    instead_of(
        "_by_geometry",
        offset_in_elements_of_the_base,
        "rule of alias analysis: offsets are in elements of the dtype of the view",
        _Functionalization,
    ),
    instead_of("_as_base", base_has_another_layout, "pytorch/pytorch#133512", _Functionalization),
)
