"""Targets *reference* and *reference-copy*: the passes of `reference_pass`, their graph run in eager.

They promise all that eager does: no waiver, no premise.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence

import torch
from torch import fx

from generators.execution import ProgramFunction, as_graph
from oracles.contract import Contract, Refusal
from reference_pass.functionalize import Views, functionalize
from reference_pass.noops import remove_noops
from reference_pass.reinplace import reinplace
from targets.target import Build, Function, Stage, Target


def build(function: Function, inputs: Sequence[torch.Tensor], *, views: Views) -> Build:
    """Functionalize, then reinplace a copy of that stage."""
    if isinstance(function, ProgramFunction):
        function = fx.GraphModule(torch.nn.Module(), as_graph(function.program))
    functional = functionalize(function, *inputs, views=views)
    plain = remove_noops(copy.deepcopy(functional))
    reinplaced = reinplace(copy.deepcopy(plain))
    stages = [Stage("functional", functional), Stage("without no-ops", plain), Stage("reinplaced", reinplaced)]
    return Build(reinplaced, stages)

CONTRACT = Contract()
RECIPE=""
REFERENCE = Target(
    name="reference",
    summary="reference_pass: functionalize and reinplace, run in eager",
    contract=CONTRACT,
    build=functools.partial(build, views="alias"),
    recipe=RECIPE,
)
REFERENCE_COPY = Target(
    name="reference-copy",
    summary="reference_pass: functionalize with view-copy ops and reinplace, run in eager",
    contract=CONTRACT,
    build=functools.partial(build, views="copy"),
    recipe=RECIPE,
)
