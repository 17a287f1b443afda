"""Calls that write, and whose functional form has other bits.

They are called on copies of what they write (`on_copies`), with the strides of eager:

- random numbers come in the order of memory, and the functional form has another layout;
- an `out=` can have gaps, or be transposed: then the kernel runs other loops than for the new
  tensor of the functional form, and may round in another way;
- `mul_` rounds its scalar to bfloat16 or float16, and `mul` does not (`rounds_its_scalar`).
"""

from __future__ import annotations

from typing import Any

from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.alias_analysis import Effect
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import bind, facts, on_copies
from aliasproof.reference_pass.eager.rounding import rounds_its_scalar
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.functional_calls import (
    called_on_copies,
    computed,
    has_lazy_bits,
    read_overlaps,
    refuse_two_writes,
    write_results,
    written_views,
)
from aliasproof.reference_pass.functional_storage import FunctionalView
from aliasproof.reference_pass.regions import contiguous_strides, same_strides


def call_of_exact_bits(env: Environment, node: fx.Node, effect: Effect) -> bool:
    """Emit a call that writes, and may need exact strides; False for any other call."""
    op = node.target
    if not isinstance(op, OpOverload) or not facts(op).writes:
        return False
    views = written_views(env, node)
    if not (facts(op).random or facts(op).outs or _rounds_its_scalar(op, views)):
        return False
    refuse_two_writes(op, views)
    given = bind(op, node.args, node.kwargs)
    write_results(env, node, effect, exactly_computed(env, node, op, given, views))
    return True


def exactly_computed(
    env: Environment,
    node: fx.Node,
    op: OpOverload,
    given: dict[str, Any],
    views: list[FunctionalView],
) -> fx.Node:
    """What an op computes for a captured call (`functional_calls.computed`), with its bits."""
    in_another_order = facts(op).random and not all(map(_is_contiguous, views))
    if in_another_order or _rounds_its_scalar(op, views):
        return called_on_copies(env, node, op, given, views)
    new = computed(env, node, op, given, views)
    if not _rounds_elsewhere(env, node, new, views) or read_overlaps(env, op, given, views):
        return new
    env.emit.graph.erase_node(new)
    return called_on_copies(env, node, op, given, views)


def _rounds_its_scalar(op: OpOverload, views: list[FunctionalView]) -> bool:
    geometry = views[0].geometry if views else None
    return geometry is not None and rounds_its_scalar(op, geometry.dtype)


def _is_contiguous(view: FunctionalView) -> bool:
    geometry = view.geometry
    if geometry is None:
        return True
    wanted = tuple(contiguous_strides(geometry.sizes))
    return same_strides(geometry.sizes, geometry.strides, wanted)


def _rounds_elsewhere(
    env: Environment, node: fx.Node, new: fx.Node, written: list[FunctionalView]
) -> bool:
    """True if a call into an `out=` may have other bits than its functional form, `new`."""
    op = node.target
    assert isinstance(op, OpOverload)
    if new.target is on_copies or not facts(op).outs or any(map(has_lazy_bits, written)):
        return False
    results = tensors_in(new.meta["val"])[len(facts(op).fresh) :]
    return env.depends_on_strides(node) and not all(
        view.geometry is None
        or same_strides(view.geometry.sizes, result.stride(), view.geometry.strides)
        for view, result in zip(written, results, strict=True)
    )
