"""Views by geometry, and storages in one dimension.

The first chapter reaches each `View` by a chain of view ops. That is wrong for `as_strided`,
because it starts from the storage, whatever its operand shows. Such a tensor is reached by its
*geometry*: `as_strided` of the base, with the sizes, strides and offset that the alias analysis
observed.

    y = as_strided(x, (2,), (1,), 0)           y shows the storage of x, whatever x shows

The base must show all bytes of such a view. If no tensor of the program does, the base is the
storage itself, *flattened*: from its first to its last byte, as a tensor of one dimension.
"""

from __future__ import annotations

import torch
from torch import fx

from aliasproof.reference_pass.bases import BaseKind
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.calls.regions import known
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.functional_storage import FunctionalStorage, FunctionalView

# --- views by geometry ----------------------------------------------------------------------------
#
# `as_strided` counts elements of one dtype and keeps the lazy bits of its operand. So the chain has
# up to three parts: an operand of the right dtype, `as_strided`, and the lazy bits.


def view_of_geometry(
    storage: FunctionalStorage, geometry: Geometry, operand: FunctionalView
) -> FunctionalView:
    """The view of this geometry, whatever op made it.

    It starts from the base. In a constant storage, whose base is only its first view, it starts
    from `operand`.
    """
    view, start_dtype = storage.base, geometry.dtype
    if storage.kind is BaseKind.FLATTENED:
        base = storage.read(storage.base).meta["val"]
        view, start_dtype = _flattened_as(storage.base, base, geometry.dtype), base.dtype
    elif storage.kind is BaseKind.CONSTANT:
        view = _without_elements(operand, geometry.dtype)
    start = view.geometry
    if start is None or not start.plain.same(geometry.plain):
        offset = storage.rules.as_strided_offset(geometry, start_dtype)
        sizes, strides = list(geometry.sizes), list(geometry.strides)
        view = view.through(aten.as_strided.default, sizes, strides, offset)
    if storage.kind is BaseKind.FLATTENED and geometry.dtype == torch.bool:
        view = view.through(aten.view.dtype, torch.bool)
    conj, neg = (False, False) if start is None else (start.conj, start.neg)
    if geometry.conj != conj:
        view = view.through(aten._conj.default)
    if geometry.neg != neg:
        view = view.through(aten._neg_view.default)
    if geometry.detached:
        view = view.through(aten.detach.default)
    view.geometry = geometry
    return view


# A view as another dtype needs a whole number of its elements. In a flattened storage, excess bytes
# at the end are cut off. In a constant storage the operand can be any tensor, so the view is of
# none of its elements: that always exists, and `as_strided` reaches the whole storage from it.


def _flattened_as(base: FunctionalView, tensor: torch.Tensor, dtype: torch.dtype) -> FunctionalView:
    """A flattened base as elements of a dtype. Bools are bytes until the end of the chain."""
    wanted = torch.uint8 if dtype == torch.bool else dtype
    if tensor.dtype == wanted:
        return base
    nbytes, view = tensor.numel() * tensor.element_size(), base
    if not known(nbytes % wanted.itemsize == 0):
        count = nbytes // wanted.itemsize * wanted.itemsize // tensor.element_size()
        view = view.through(aten.slice.Tensor, 0, 0, count, 1)
    return view.through(aten.view.dtype, wanted)


def _without_elements(view: FunctionalView, dtype: torch.dtype) -> FunctionalView:
    """The view itself if it has this dtype; otherwise an empty view of it, as this dtype."""
    geometry = view.shows
    if geometry.dtype == dtype:
        return view
    if geometry.conj:
        view = view.through(aten._conj.default)
    if geometry.neg:
        view = view.through(aten._neg_view.default)
    return view.through(aten.as_strided.default, [0], [1], 0).through(aten.view.dtype, dtype)


# --- flattened storages ---------------------------------------------------------------------------


def flatten(storage: FunctionalStorage, shown: fx.Node) -> None:
    """Make the whole storage of a tensor the base."""
    nbytes = shown.meta["val"].untyped_storage().nbytes()
    value = storage.emit.flattened(shown, nbytes, storage.emit.view)
    # A copy of bools may normalise their bytes to 0 or 1, and views of other dtypes would see that.
    if value.meta["val"].dtype == torch.bool:
        value = storage.emit.view(aten.view.dtype, value, torch.uint8)
    storage.base = FunctionalView(storage)
    storage.base.note(value)


# `resize_` can make a storage larger. Such a storage is always flattened (`bases.is_base`). The
# contents of the new bytes are undefined in eager; here they are zero.


def resize(storage: FunctionalStorage, nbytes: int) -> None:
    """Make a flattened storage larger, to this many bytes or to the next whole element."""
    value = storage.read(storage.base)
    old = value.meta["val"]
    count = -(-nbytes // old.element_size()) - old.numel()  # rounded up
    more = storage.emit.call(aten.new_zeros.default, value, [count])
    resized = storage.emit.call(aten.cat.default, [value, more])
    storage.version += 1
    storage.base.note(resized)
