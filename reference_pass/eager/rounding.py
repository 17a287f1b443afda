"""Bits of eager: where a call in place rounds otherwise, and operands with the strides of eager."""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.alias_analysis import Effect
from aliasproof.reference_pass.calls import operator_forms
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import (
    SCATTERS,
    WRITTEN_IN_PLACE,
    aten,
    bind,
    facts,
    writes,
)
from aliasproof.reference_pass.calls.regions import (
    contiguous_strides,
    is_data_dependent,
    known,
    same_strides,
)
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.candidates import Candidate, How
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.functional_calls import (
    WritingCall,
    called_on_copies,
    compute_call,
    has_lazy_bits,
    read_overlaps,
    refuse_two_writes,
    write_results,
)
from aliasproof.reference_pass.functional_storage import FunctionalView


def same_bits(candidate: Candidate) -> str | None:
    """(3b) The call that writes the result gives the bits of the functional call."""
    node = candidate.node
    writes_result = candidate.how in (How.IN_PLACE, How.CAST_BACK, How.OUT)
    value = node.meta["val"]
    in_place = (
        writes_result
        and node.target in _COMPLEX_PRODUCTS
        and isinstance(value, torch.Tensor)
        and value.is_complex()
        and not node.meta.get(WRITTEN_IN_PLACE)
    )
    if in_place or _rounds_in_an_input(candidate):
        return "a product of complex numbers may be rounded otherwise where it overwrites memory"
    if (writes_result or candidate.how is How.SCATTER) and _loses_sign(node):
        return "copy_ between float16 and float32 loses the lazy negative bit of its source"
    return None


# A compiler may fuse one multiplication of a complex product with the addition. In the remainder of
# a vector loop it does so depending on whether the result overwrites an operand. A call that the
# program makes in place has the bits of the in-place call.


_COMPLEX_PRODUCTS = {
    aten.mul.Tensor,
    aten.mul.Scalar,
    aten.div.Tensor,
    aten.addcmul.default,
    aten.addcdiv.default,
    aten.addr.default,
}


def _rounds_in_an_input(candidate: Candidate) -> bool:
    """True for complex numbers that are computed into an input that is not an operand itself.

    For the first operand there is an in-place form, which is tried before.
    """
    node = candidate.node
    is_exact = candidate.op in (aten.copy_.default, aten.neg.out)
    if candidate.how is not How.OUT or is_exact or not node.meta["val"].is_complex():
        return False
    assert isinstance(node.target, OpOverload)
    given = bind(node.target, node.args, node.kwargs).values()
    operands = [argument for argument in given if isinstance(argument, fx.Node)]
    others = operands if operator_forms.in_place_form(node.target) is None else operands[1:]
    return any(slot.destination not in others for slot in candidate.slots)


def _loses_sign(node: fx.Node) -> bool:
    """True for a `copy`, or scatter, that would lose the sign of its source as a `copy_`.

    On CPU, torch 2.13 has a separate kernel for `copy_` between float16 and float32. It ignores the
    lazy negative bit. The functional forms resolve that bit first.
    """
    if node.target is not aten.copy.default and node.target not in SCATTERS:
        return False
    given = bind(node.target, node.args, node.kwargs)
    to, source = given["self"].meta["val"], given["src"].meta["val"]
    converts = {to.dtype, source.dtype} == {torch.float16, torch.float32}
    return converts and to.is_neg() != source.is_neg()


def rounds_its_scalar(op: OpOverload, dtype: torch.dtype | None) -> bool:
    """True if an in-place op rounds its scalar to this dtype, and its functional form does not."""
    return op in ROUND_SCALARS and dtype in (torch.bfloat16, torch.float16)


ROUND_SCALARS = {aten.mul_.Scalar, aten._foreach_mul_.Scalar, aten._foreach_mul_.ScalarList}


def in_place_form(node: fx.Node) -> OpOverload | None:
    """The operator that writes what a call computes to its operands, with the same bits."""
    assert isinstance(node.target, OpOverload)
    form = operator_forms.in_place_form(node.target)
    dtypes = {tensor.dtype for tensor in tensors_in(node.meta["val"])}
    if form is None or not any(rounds_its_scalar(form, dtype) for dtype in dtypes):
        return form
    # `mul_.Tensor` takes the same arguments: a number for a tensor. Lists have no such form.
    return aten.mul_.Tensor if form is aten.mul_.Scalar else None


# --- exact calls ----------------------------------------------------------------------------------
#
# Calls that write, and whose functional form has other bits. They are called on copies of what they
# write (`on_copies`), with the strides of eager:
#
# - random numbers are drawn in memory order, and the functional form has another layout;
# - an `out=` can have gaps, or be transposed: then the kernel runs other loops than for the new
#   tensor of the functional form, and may round differently;
# - `mul_` rounds its scalar to bfloat16 or float16, and `mul` does not (`rounds_its_scalar`).


def call_of_exact_bits(env: Environment, node: fx.Node, effect: Effect) -> bool:
    """Emit a call that writes, and may need exact strides; False for any other call."""
    op = node.target
    if not writes(op):
        return False
    if not (facts(op).random or facts(op).outs or op in ROUND_SCALARS):
        return False
    call = WritingCall.of(env, node)
    refuse_two_writes(call)
    write_results(env, call, effect, compute_exactly(env, call))
    return True


def compute_exactly(env: Environment, call: WritingCall) -> fx.Node:
    """The result of a call (`functional_calls.compute_call`), with its bits."""
    in_another_order = facts(call.op).random and not all(
        same_strides(seen.sizes, seen.strides, tuple(contiguous_strides(seen.sizes)))
        for seen in (view.shows for view in call.views)
    )
    if in_another_order or rounds_its_scalar(call.op, call.dtype):
        return called_on_copies(env, call)
    new = compute_call(env, call)
    if not _rounds_elsewhere(env, call, new) or read_overlaps(env, call):
        return new
    env.emit.graph.erase_node(new)
    return called_on_copies(env, call)


def _rounds_elsewhere(env: Environment, call: WritingCall, new: fx.Node) -> bool:
    """True if a call into an `out=` may have other bits than its functional form, `new`."""
    known = facts(call.op)
    if new.target is on_copies or not known.outs or any(map(has_lazy_bits, call.views)):
        return False
    results = tensors_in(new.meta["val"])[len(known.fresh) :]
    return depends_on_strides(env, call.node) and not all(
        same_strides(view.shows.sizes, result.stride(), view.shows.strides)
        for view, result in zip(call.views, results, strict=True)
    )


# --- operands with the strides of eager -----------------------------------------------------------
#
# A value can have other strides than in eager: a value written through a view with gaps is dense.
# The results of many calls depend on strides. The graph of a branch was traced for them, random
# numbers are drawn in memory order, and sums are rounded in that order.


def operand_with_strides(env: Environment, view: FunctionalView, call: fx.Node) -> fx.Node:
    """The value of a view; with the strides of eager if the captured call depends on them."""
    value, geometry = view.storage.read(view), view.shows
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
