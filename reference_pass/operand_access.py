"""What an operator reads of its operands: values or metadata alone, all of a storage, its location.

Schemas do not say this, so these are short tables of ATen operators. An operator that is in no
table gets the safe answer: it reads all values of each operand.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import fx
from torch._ops import OpOverload

from reference_pass.operator_forms import aten, bind, facts, unbind
from reference_pass.regions import Size, known


@functools.cache
def unread(op: OpOverload) -> tuple[str, ...]:
    """The arguments whose data an op does not read: it reads their metadata, or overwrites them."""
    name = op.overloadpacket.__name__
    if name.endswith("_like") or name.startswith(("new_", "sym_")):
        return facts(op).names[:1]
    if op in (aten.view_as.default, aten.expand_as.default, aten.reshape_as.default):
        return facts(op).names[1:]
    return ("self",) if op is aten.copy_.default else ()


def overwrites(op: OpOverload) -> bool:
    """True if the in-place form of an op overwrites its first operand without reading it."""
    return op in _OVERWRITES


_OVERWRITES = {
    aten.fill.Scalar,
    aten.fill.Tensor,
    aten.zero.default,
    aten.copy.default,
    aten.uniform.default,
    aten.normal_functional.default,
    aten.exponential.default,
    aten.random.default,
    aten.random.to,
    getattr(aten.random, "from"),
    aten.cauchy.default,
    aten.log_normal.default,
    aten.geometric.default,
}

# The view that each scatter stores through. Of its base, its first operand, a scatter reads all
# bytes except those that this view covers.
SCATTERS = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.as_strided_scatter.default: aten.as_strided.default,
}


def stores_through(scatter: fx.Node) -> tuple[OpOverload, tuple[Any, ...]]:
    """The view op that a scatter stores through, and its arguments; the first one is the base."""
    assert isinstance(scatter.target, OpOverload)
    given = bind(scatter.target, scatter.args, scatter.kwargs)
    del given["src"]  # the other arguments have the same names in the view op
    view = SCATTERS[scatter.target]
    return view, unbind(view, given)[0]


# These copy the whole storage of their first operand, not only the bytes that the operand covers.
# So the result has the operand's offset, and `as_strided` of the result shows bytes from around the
# operand. They raise if the storage ends with a part of an element.
COPIES_STORAGE = {aten.copy.default, *SCATTERS}


def depends_on_location(op: object) -> bool:
    """True if what an op shows or stores depends on its operand's offset and whole storage."""
    return getattr(op, "overloadpacket", None) in (
        aten.as_strided,
        aten.as_strided_copy,
        aten.as_strided_scatter,
    )


def misaligned_by(user: fx.Node, shift: Size) -> bool:
    """True if a view as a larger dtype may be misaligned, its operand moved by `shift` bytes."""
    larger = user.target in (aten.view.dtype, aten.view_as_complex.default)
    return larger and not known(shift % user.meta["val"].itemsize == 0)
