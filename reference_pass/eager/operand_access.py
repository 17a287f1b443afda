"""Properties, beside the values of its operands, on which the result of an operator depends.

Schemas do not say this, so these are short tables of ATen operators.
"""

from __future__ import annotations

from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.copied_operands import called_operator, on_copies
from aliasproof.reference_pass.calls.nested import leaves_in, tensors_in
from aliasproof.reference_pass.calls.operand_reads import unread
from aliasproof.reference_pass.calls.operator_forms import (
    aten,
    bind,
    functional_form,
    is_opaque,
    is_pointwise,
)
from aliasproof.reference_pass.calls.regions import Size, known
from aliasproof.reference_pass.semantics import Values

# Whether a view as a larger dtype is possible depends on the offset of its operand. A copy of such
# a view is made through the view.
NEEDS_ALIGNMENT = {
    *(aten.view.dtype, aten.view_copy.dtype),
    *(aten.view_as_complex.default, aten.view_as_complex_copy.default),
}


def misaligned_by(user: fx.Node, shift: Size) -> bool:
    """True if a move of its operand by `shift` bytes may misalign a view as a larger dtype."""
    return user.target in NEEDS_ALIGNMENT and not known(shift % user.meta["val"].itemsize == 0)


# --- bits that depend on strides ------------------------------------------------------------------


def rounds_by_strides(node: fx.Node, value: Values) -> bool:
    """True if the bits that a call computes may depend on the strides of its tensors.

    A sum adds in memory order. The vector loop of `sigmoid`, for dense tensors, does not round as
    the scalar loop does. If each element is only moved, or rounded once and correctly, the order
    does not matter.
    """
    op, args = called_operator(node)
    if not isinstance(op, OpOverload):
        return True  # a control flow call
    if unread(op) or "layouts" in node.kwargs:
        return False  # it gets copies that have layouts of their own
    given = bind(op, args, node.kwargs)
    values = [value(leaf) if isinstance(leaf, fx.Node) else leaf for leaf in leaves_in(given)]
    tensors = tensors_in([*values, value(node)])
    rounds = any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors)
    if not rounds and is_pointwise(op):
        return False
    packet = (functional_form(op) or op).overloadpacket
    if packet in _ROUND_ONCE:
        # `alpha` is a second operation. A complex product has three.
        scaled = given.get("alpha", 1) != 1 or given.get("rounding_mode") is not None
        return scaled or any(tensor.is_complex() for tensor in tensors)
    return packet not in _MOVE


_ROUND_ONCE = {
    *(aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.neg, aten.abs, aten.relu, aten.sign),
    *(aten.sqrt, aten.floor, aten.ceil, aten.round, aten.trunc, aten.copysign, aten.threshold),
    *(aten.maximum, aten.minimum, aten.fmax, aten.fmin, aten.amax, aten.amin),
    *(aten.clamp, aten.clamp_min, aten.clamp_max, aten.all, aten.any),
    *(aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge, aten.isnan, aten.isinf),
    *(aten.logical_and, aten.logical_or, aten.logical_xor, aten.logical_not),
}
_MOVE = {
    *(aten.clone, aten.copy, aten._to_copy, aten.fill, aten.zero, aten.where, aten.masked_fill),
    *(aten.cat, aten.stack, aten.flip, aten.roll, aten.repeat, aten.constant_pad_nd, aten.tril),
    *(aten.triu, aten.index, aten.gather, aten.index_select, aten.embedding, aten.reshape),
    *(aten.contiguous, aten.flatten, aten.index_put, aten.masked_select, aten.take),
    *(aten._foreach_copy, aten.slice_copy, aten.select_copy, aten.view_copy, aten.expand_copy),
    *(aten.permute_copy, aten.transpose_copy, aten.unfold_copy, aten.diagonal_copy),
    *(aten.select_scatter, aten.slice_scatter, aten.diagonal_scatter),
}


def shows_layout(user: fx.Node) -> bool:
    """True for a call of an operator that may depend on the whole layout of each operand."""
    if user.target is on_copies:
        return is_opaque(user.args[0]) and "layouts" not in user.kwargs
    return is_opaque(user.target)


def reads_all_strides(user: fx.Node) -> bool:
    """True for a call that depends on all strides of its operand."""
    if user.target in (aten.view.dtype, aten.view_copy.dtype):
        operand, dtype = user.args[:2]
        assert isinstance(operand, fx.Node)
        return bool(operand.meta["val"].itemsize != dtype.itemsize)  # type: ignore[union-attr]
    return user.target in NEEDS_ALIGNMENT or shows_layout(user)
