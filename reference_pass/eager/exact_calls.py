"""Calls that write, and whose functional form has other bits.

They are called on copies of what they write (`on_copies`), with the strides of eager:

- random numbers come in the order of memory, and the functional form has another layout;
- an `out=` can have gaps, or be transposed: then the kernel runs other loops than for the new
  tensor of the functional form, and may round in another way;
- `mul_` rounds its scalar to bfloat16 or float16, and `mul` does not (`rounds_its_scalar`).
"""

from __future__ import annotations

from torch import fx

from aliasproof.reference_pass.alias_analysis import Effect
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import facts, writes
from aliasproof.reference_pass.calls.regions import contiguous_strides, same_strides
from aliasproof.reference_pass.eager.rounding import ROUND_SCALARS, rounds_its_scalar
from aliasproof.reference_pass.eager.strided_operands import depends_on_strides
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.functional_calls import (
    WritingCall,
    called_on_copies,
    computed,
    has_lazy_bits,
    read_overlaps,
    refuse_two_writes,
    write_results,
)
from aliasproof.reference_pass.functional_storage import FunctionalView


def call_of_exact_bits(env: Environment, node: fx.Node, effect: Effect) -> bool:
    """Emit a call that writes, and may need exact strides; False for any other call."""
    op = node.target
    if not writes(op):
        return False
    if not (facts(op).random or facts(op).outs or op in ROUND_SCALARS):
        return False
    call = WritingCall.of(env, node)
    refuse_two_writes(call)
    write_results(env, call, effect, exactly_computed(env, call))
    return True


def exactly_computed(env: Environment, call: WritingCall) -> fx.Node:
    """What a call computes (`functional_calls.computed`), with its bits."""
    in_another_order = facts(call.op).random and not all(map(_is_contiguous, call.views))
    if in_another_order or rounds_its_scalar(call.op, call.dtype):
        return called_on_copies(env, call)
    new = computed(env, call)
    if not _rounds_elsewhere(env, call, new) or read_overlaps(env, call):
        return new
    env.emit.graph.erase_node(new)
    return called_on_copies(env, call)


def _is_contiguous(view: FunctionalView) -> bool:
    geometry = view.geometry
    if geometry is None:
        return True
    wanted = tuple(contiguous_strides(geometry.sizes))
    return same_strides(geometry.sizes, geometry.strides, wanted)


def _rounds_elsewhere(env: Environment, call: WritingCall, new: fx.Node) -> bool:
    """True if a call into an `out=` may have other bits than its functional form, `new`."""
    known = facts(call.op)
    if new.target is on_copies or not known.outs or any(map(has_lazy_bits, call.views)):
        return False
    results = tensors_in(new.meta["val"])[len(known.fresh) :]
    return depends_on_strides(env, call.node) and not all(
        view.geometry is None
        or same_strides(view.geometry.sizes, result.stride(), view.geometry.strides)
        for view, result in zip(call.views, results, strict=True)
    )
