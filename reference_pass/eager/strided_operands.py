"""Operands with the strides of eager.

A value can have other strides than in eager: a value written through a view with gaps is dense. The
results of many calls depend on strides. The graph of a branch was traced for them, random numbers
are drawn in memory order, and sums are rounded in that order.
"""

from __future__ import annotations

from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.operator_forms import facts
from aliasproof.reference_pass.calls.regions import is_data_dependent, known, same_strides
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.functional_storage import FunctionalView


def operand_with_strides(env: Environment, view: FunctionalView, call: fx.Node) -> fx.Node:
    """The value of a view; with the strides of eager if the captured call depends on them."""
    value, geometry = view.storage.read(view), view.geometry
    if geometry is None:
        return value
    # Strides are compared first, since they rarely differ.
    if not _has_strides(value, geometry) and depends_on_strides(env, call):
        value = _with_strides(env, view, geometry)
        if not _has_strides(value, geometry):
            return value
    env.read[value] = geometry.strides
    return value


def depends_on_strides(env: Environment, call: fx.Node) -> bool:
    """True if the results of a captured call may depend on the strides of its operands."""
    if isinstance(call.target, OpOverload) and facts(call.target).random:
        return True
    return env.emit.semantics.rounds_by_strides(call, env.analysis.value)


def _has_strides(value: fx.Node, geometry: Geometry) -> bool:
    """True if a value has the strides of a geometry, as far as they locate elements."""
    return same_strides(geometry.sizes, value.meta["val"].stride(), geometry.strides)


def _has_its_strides(view: FunctionalView) -> bool:
    """True if the noted value of a view is known to have the strides of eager. A base has them."""
    if view.parent is None:
        return True
    value, geometry = view.value, view.geometry
    return value is not None and geometry is not None and _has_strides(value, geometry)


# The base has the strides of eager, so the view is regenerated from there. View copies are always
# dense: then the value itself is copied, and the copy replaces it.


def _with_strides(env: Environment, view: FunctionalView, geometry: Geometry) -> fx.Node:
    """The value of a view with the strides of eager, if that is possible."""
    storage, copies = view.storage, env.emit.copies
    value = storage.read(view)
    if not copies:
        storage.apply()
        value = storage.regenerate(view, _has_its_strides)
    # A copy has no stride of zero. A data-dependent size has another symbol here, so that strides
    # of such sizes cannot be compared.
    if (
        _has_strides(value, geometry)
        or any(known(stride == 0) for stride in geometry.strides)
        or any(map(is_data_dependent, value.meta["val"].stride()))
    ):
        return value
    value = env.emit.lay_out(value, geometry.sizes, geometry.strides)
    if copies and storage.queue and storage.queue[-1][0] is view:
        storage.queue[-1] = view, value
    elif copies:
        view.note(value)
    return value
