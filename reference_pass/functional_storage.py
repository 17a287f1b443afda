"""The storage model: what a storage contains, and how its views are read and written.

A tensor is a *view* of a storage. The contents of the storage are the value of its *base*, and a
value is a node of the new graph. Every other view is reached from the base by its *view chain*, one
view op per step:

    a ── view ──► b ── select ──► c          b = a.view(4, 2);  c = b[0]

The new graph writes nothing. So a write through `c` makes a new value for `c`, and the storage
changes only when that update is *applied*: it goes up the view chain, by the inverse of each view
op, to a new value of the base. That is a new *version* of the storage.

    c1 = add(c, 1)                           c.add_(1)
    b1 = select_scatter(b, c1, 0, 0)         the inverse of select
    a1 = view(b1, [8])                       the inverse of view

Updates are queued until another view of the storage is read, so that two writes in a row to one
view go up its chain once. The first chapter has room for one update (`queued`), and `apply` makes
the base contiguous. One update is too few for calls that write two views (a foreach op), or that do
not read what they overwrite. A contiguous base is wrong, because views may need its own strides.

Modelled on `FunctionalStorageImpl` (`aten/src/ATen/FunctionalStorageImpl.h`). Differences: a view
knows its parent and not only its base, so it is regenerated from the nearest view whose value is
known; the base can be the whole storage in one dimension (`flattening.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.bases import BaseKind
from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.calls.regions import is_dense, known, same_strides
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.calls.view_forms import ViewStep
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.rules import Rules

# --- views ----------------------------------------------------------------------------------------
#
# A view keeps the last value that it had, and the version of its storage at that time. If the
# storage has a newer version now, that value is out of date, and the next read recomputes it.


@dataclass(slots=True, eq=False)
class FunctionalView:
    """One way to see a storage: the base, which has no parent, or one view op of a parent.

    `geometry` is None for views that no tensor of the program has: the base of a flattened storage,
    and views in the middle of a chain. `value` was its value at version `version` of the storage.
    """

    storage: FunctionalStorage
    geometry: Geometry | None = None
    parent: FunctionalView | None = None
    step: ViewStep | None = None
    value: fx.Node | None = None
    version: int = 0

    @property
    def current(self) -> fx.Node | None:
        """The value, if it is known and not out of date."""
        current = self.storage.rules.is_current(self.version, self.storage.version)
        return self.value if current else None

    @property
    def shows(self) -> Geometry:
        """The geometry of a view that a tensor of the program has."""
        assert self.geometry is not None
        return self.geometry

    def note(self, value: fx.Node) -> fx.Node:
        """Note the value of this view at the current version of the storage."""
        self.value, self.version = value, self.storage.version
        return value

    def through(self, op: OpOverload, *arguments: Any) -> FunctionalView:
        """The view one step further down: a view op of this one."""
        return FunctionalView(self.storage, None, self, (op, arguments))


# --- storages -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class FunctionalStorage:
    """One storage of the program: its base, its version, its views, and the queue of updates.

    `origin` is its input (a node of the new graph); None if the program made the storage. `views`
    are the views that tensors of the program have, by the key of their geometry.
    """

    emit: Emitter
    rules: Rules
    kind: BaseKind
    origin: fx.Node | None
    base: FunctionalView = field(init=False)
    version: int = 0
    queue: list[tuple[FunctionalView, fx.Node]] = field(default_factory=list)
    views: dict[object, FunctionalView] = field(default_factory=dict)

    # --- reading ----------------------------------------------------------------------------------
    #
    # If the newest update was written through this same view, its value is the result. Otherwise
    # the queue is applied, and the view is regenerated.

    def read(self, view: FunctionalView) -> fx.Node:
        """The value of a view now."""
        if self.queue:
            last, value = self.queue[-1]
            if last is view:
                return value
        if self.rules.must_apply(len(self.queue), view.current):
            self.apply()
        return self.regenerate(view)

    def regenerate(
        self, view: FunctionalView, is_usable: Callable[[FunctionalView], bool] | None = None
    ) -> fx.Node:
        """The value of a view by its chain, from the nearest ancestor whose value is known.

        With `is_usable`, only ancestors for which it returns True count; it accepts the base.
        """
        chain = []
        while view.current is None or (is_usable is not None and not is_usable(view)):
            chain.append(view)
            assert view.parent is not None, "the value of a base is always known"
            view = view.parent
        value = view.current
        for lower in reversed(chain):
            assert lower.step is not None
            assert lower.parent is not None
            op, arguments = lower.step
            # A value can have other strides than in eager, and the view op may be invalid on them.
            # Then the emitter copies the value to eager's strides first.
            above = lower.parent.geometry
            strides = None if above is None else above.strides
            value = lower.note(self.emit.view(op, value, *arguments, strides=strides))
        return value

    # --- writing ----------------------------------------------------------------------------------
    #
    # New contents of a view are converted to its dtype. If the view is dense, they get its strides
    # too, so that views of the new value are valid as in eager. Then the update is queued.

    def write(self, view: FunctionalView, value: fx.Node) -> None:
        """Store new contents of a view. Raises `Refused` if they do not have its size."""
        geometry, given = view.shows, value.meta["val"]
        if geometry.region.empty:
            return
        sizes, wanted = tuple(given.shape), list(geometry.sizes)
        # Symbolic sizes that may be equal are assumed to be equal.
        if len(sizes) != len(wanted) or any(map(known, map(operator.ne, sizes, wanted))):
            raise Refused(f"a value of size {list(sizes)} is stored in a tensor of size {wanted}")
        if given.dtype != geometry.dtype:
            value = self.emit.call(aten._to_copy.default, value, dtype=geometry.dtype)
        strides = value.meta["val"].stride()
        if is_dense(geometry.region) and not same_strides(sizes, strides, geometry.strides):
            value = self.emit.call(aten.copy.default, self.read(view), value)
        # The update replaces those that it overwrites. An older update of this view must stay if
        # updates of other views came after it.
        if self.queue and self.queue[-1][0] is view:
            self.queue.pop()
        if view is self.base:  # it shows the whole storage
            self.queue.clear()
        self.queue.append((view, value))

    # Some ops ignore the contents of the tensor that they write, such as `fill_`. They need only
    # its metadata, so any older value will do. If they take one, an update that is about to be
    # dropped has no use, and becomes dead code:
    #
    #     x.fill_(1)                     dead: the next call takes the old x
    #     x.fill_(2)                     x1 = fill(x, 2)

    def value_before_queue(self, view: FunctionalView) -> fx.Node | None:
        """The last applied value of a view, if a write to the view replaces the newest update."""
        if self.queue and (view is self.base or self.queue[-1][0] is view):
            return view.current
        return None

    # --- applying ---------------------------------------------------------------------------------
    #
    # The oldest update is first. It goes up its view chain: the inverse of each view op makes the
    # new value of the parent. All views of the chain are noted with their new values, at the new
    # version; the other views of the storage are out of date.

    def apply(self) -> None:
        """Apply all queued updates."""
        queue, self.queue = self.queue, []
        for view, value in queue:
            with self.emit.on_behalf_of(value):  # the calls of an update belong to its write
                chain = self._up_the_chain(view, value)
            self.version += 1
            for changed, new in chain:
                changed.note(new)

    def _up_the_chain(
        self, view: FunctionalView, value: fx.Node
    ) -> list[tuple[FunctionalView, fx.Node]]:
        """The new value of a view, and of each view above it; the base is last."""
        chain = [(view, value)]
        while view.parent is not None:
            assert view.step is not None
            op, arguments = view.step
            # Inverses that change a part of the parent call this for its old value.
            parent = partial(self.regenerate, view.parent)
            value = self.rules.inverses[op](self.emit, parent, value, arguments)
            view = view.parent
            chain.append((view, value))
        # A new value of the base is copied if its strides are not those required.
        new = value.meta["val"]
        wanted = tuple(self.rules.base_strides(self.base.geometry, new))
        if not same_strides(new.shape, new.stride(), wanted):
            chain[-1] = view, self.emit.call(aten.copy.default, self.regenerate(view), value)
        return chain

    # --- finding a view ---------------------------------------------------------------------------
    #
    # Tensors of one geometry are one view, so that its value is computed once.

    def find(self, geometry: Geometry) -> FunctionalView | None:
        """The view of a geometry, if some tensor of the program had it before."""
        base = self.base.geometry
        if base is not None and base.same(geometry):
            return self.base
        return self.views.get(geometry.key)

    def register(self, view: FunctionalView) -> FunctionalView:
        """Note a view for `find`."""
        self.views[view.shows.key] = view
        return view
