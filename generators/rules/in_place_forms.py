"""Operators that Inductor knows an in-place form of, as rules: a call whose result is copied back.

Reinplacing turns the call and the copy into one write, where nothing reads the old data afterwards.
"""

from __future__ import annotations

import functools

from torch._inductor.fx_passes import reinplace
from torch._inductor.pattern_matcher import CallFunctionVarArgs
from torch._ops import OpOverload

from aliasproof.generators.rules.pattern_walk import Walk
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Ref


@functools.cache
def in_place_forms() -> dict[str, OpOverload]:
    """The operators that a program can call, by the name of their site."""
    tables = (reinplace.inplaceable_ops, reinplace.inplaceable_foreach_ops)
    operators = [key for table in tables for key in table if isinstance(key, OpOverload)]
    return {f"put in place/{it}": it for it in operators if it.namespace == "aten"}


def play(operator: OpOverload, pick: Pick, scene: Scene) -> None:
    """Call the operator on tensors of the scene, and copy the results back. Raises `NoChoice`."""
    Walk(pick, scene).draw(CallFunctionVarArgs(operator))
    (call,) = scene.instructions
    operands = call.args[0] if isinstance(call.args[0], tuple) else call.args[:1]
    if len(operands) != len(call.results):
        raise NoChoice
    for operand, result in zip(operands, call.results, strict=True):
        scene.call("aten.copy_.default", operand, Ref(result))
