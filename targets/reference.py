"""Targets *reference* and *reference-copy*: the passes of `reference_pass`, run in eager.

They promise all that eager does, with one waiver: graphs need not be equivalent on symbolic values
where two decompositions of one operator compute the same.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence

import torch
from torch import fx

from oracles.contract import Contract, Refusal
from oracles.stage import Stage
from programs.execution import ProgramFunction, as_graph
from reference_pass.functionalize import Views, functionalize
from reference_pass.noops import remove_noops
from reference_pass.reinplace import reinplace
from targets.target import Build, Function, Target
from targets.torch_functionalize import DATA_OF_A_TRACER, OTHER_DECOMPOSITION
from targets.tracing import PLAIN, Tracing

CONTRACT = Contract(
    waivers=(OTHER_DECOMPOSITION,),
    refusals=(
        Refusal(
            "what the reference pass cannot compile",
            r"^Refused: ",  # the exception of `reference_pass` for programs that it cannot compile
            "what cannot be compiled correctly is refused, and the message says why: data-dependent"
            " sizes, operators that are known only by their schema with operands that overlap,"
            " higher-order operators",
            lambda trace: True,
        ),
        DATA_OF_A_TRACER,
    ),
)


def build(
    function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN, *, views: Views
) -> Build:
    """Run the passes one by one, and keep the graph after each.

    A program is taken as its graph, without a trace, unless sizes are to be symbols.
    """
    if tracing.symbolic:
        functional = functionalize(function, *inputs, views=views, sizes="symbolic")
    else:
        functional = functionalize(untraced(function), *inputs, views=views)
    # Each pass changes its argument, so it gets a copy, and the stage before is kept for oracles.
    plain = remove_noops(copy.deepcopy(functional))
    return staged(functional, plain, reinplace(copy.deepcopy(plain)))


def untraced(function: Function) -> Function:
    """A program as its graph; any other function as it is."""
    if isinstance(function, ProgramFunction):
        return fx.GraphModule(torch.nn.Module(), as_graph(function.program))
    return function


def staged(functional: fx.GraphModule, plain: fx.GraphModule, reinplaced: fx.GraphModule) -> Build:
    """The graphs after each pass as a build, which runs the last one."""
    stages = [
        Stage("functional", functional, functional=True),
        Stage("without no-ops", plain, functional=True),
        Stage("reinplaced", reinplaced, functional=False),
    ]
    return Build(reinplaced, stages)


def recipe(tracing: Tracing = PLAIN, *, views: Views) -> str:
    """The source of `build`."""
    sizes = ', sizes="symbolic"' if tracing.symbolic else ""
    return f"""
from reference_pass import pipeline  # of aliasproof


def compiled(program, inputs):
    return pipeline(program, *inputs, views="{views}"{sizes})
"""


REFERENCE = Target(
    name="reference",
    summary="reference_pass: functionalize, remove_noops, reinplace; run in eager",
    contract=CONTRACT,
    build=functools.partial(build, views="alias"),
    recipe=recipe(views="alias"),
)
REFERENCE_COPY = Target(
    name="reference-copy",
    summary="the same with view-copy ops in place of views",
    contract=CONTRACT,
    build=functools.partial(build, views="copy"),
    recipe=recipe(views="copy"),
)
