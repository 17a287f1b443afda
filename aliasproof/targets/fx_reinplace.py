"""Target *fx-reinplace*: target *functionalize*, then `torch.fx.passes.reinplace.reinplace`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import fx
from torch.fx.passes.reinplace import reinplace

from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.stage import Stage
from aliasproof.targets import torch_functionalize
from aliasproof.targets.clauses import DATA_DEPENDENT_CUSTOM_SHAPE, DATA_DEPENDENT_SHAPE
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing
from aliasproof.targets.variants import DECOMPOSE, KEPT_OUTPUTS, SYMBOLIC


def recipe(tracing: Tracing = PLAIN) -> str:
    """The source of `build`."""
    return f"""
import copy

{tracing.imports}from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.reinplace import reinplace


def compiled(program, inputs):
    graph = make_fx(functionalize(program){tracing.arguments()})(*copy.deepcopy(inputs))
    return reinplace(graph, *inputs)
"""


def build(function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN) -> Build:
    """Functionalize, keep that stage, and reinplace a copy of it."""
    # The trace may change the metadata of its inputs, and the pass needs the original metadata.
    functional = torch_functionalize.build(function, clone_inputs(inputs), tracing).stages[0]
    module: fx.GraphModule = copy.deepcopy(functional.graph)  # the pass changes its argument
    reinplaced = reinplace(module, *inputs)
    return Build(reinplaced, [functional, Stage("reinplaced", reinplaced, functional=False)])


TARGET = Target(
    name="fx-reinplace",
    summary="functionalize, then torch.fx.passes.reinplace.reinplace, run in eager",
    contract=replace(
        torch_functionalize.CONTRACT,
        refusals=(
            *torch_functionalize.CONTRACT.refusals,
            DATA_DEPENDENT_SHAPE,
            DATA_DEPENDENT_CUSTOM_SHAPE,
        ),
    ),
    build=build,
    traced_recipe=recipe,
    variants=(DECOMPOSE, SYMBOLIC, KEPT_OUTPUTS),
    cost=2,
    after=torch_functionalize.TARGET,
)
