"""Target *identity*: the program as an FX graph, interpreted unchanged.

It must never fail: a failure is a bug of the harness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import fx

from aliasproof.ir.execution import ProgramFunction, as_graph
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.stage import Stage
from aliasproof.targets import control_flow
from aliasproof.targets.target import Build, Function, Target, Variant
from aliasproof.targets.variants import (
    AS_WRITTEN,
    BUFFERS,
    CAPTURED,
    CONTROL_FLOW,
    GRADS,
    KEPT_BUFFERS,
    SAME_INPUT,
    SECOND_CALLS,
)

RECIPE = """
def compiled(program, inputs):
    return program
"""


def build(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Interpret a program's graph; any other function runs unchanged."""
    if not isinstance(function, ProgramFunction):
        return Build(function, [])
    # The graph is interpreted, not compiled, so that no generated code can be wrong.
    module = fx.GraphModule(torch.nn.Module(), as_graph(function.program))
    return Build(fx.Interpreter(module).run, [Stage("program", module, functional=False)])


def _in_eager(variant: Variant) -> Variant:
    """The variant without Dynamo, except for `scan`."""
    form = control_flow.FORMS[variant.name]
    # `scan` returns its results in another structure if Dynamo does not compile it.
    if form.pure:
        return variant
    return replace(variant, build=lambda _, *given: form.build(control_flow.without_dynamo, *given))


TARGET = Target(
    name="identity",
    summary="the program through fx.Interpreter, unchanged; must never fail",
    contract=Contract(),
    build=build,
    recipe=RECIPE,
    variants=(
        *GRADS,
        CAPTURED,
        BUFFERS,
        KEPT_BUFFERS,
        SAME_INPUT,
        AS_WRITTEN,
        *SECOND_CALLS,
        *map(_in_eager, CONTROL_FLOW),
    ),
)
