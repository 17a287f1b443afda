"""Target *functionalize*: `make_fx(functionalize(f))`, the graph run in eager."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from oracles.contract import (
    Contract,
    Premise,
    Promise,
    Refusal,
    Waiver,
    no_overlapping_as_strided,
    written_inputs_disjoint,
)
from targets.target import Build, Function, Stage, Target

OVERLAPPING_WRITE = Refusal(
    r"mutated that has internal overlap",
    "functionalization bans writes through unfold and its like, and says so in the error",
)
AS_STRIDED_IN_CHAIN = Refusal(
    r"view chain of length .* as_strided\(\)",
    "functionalization bans writes through a chain of views with as_strided inside, and says so in the error"
    " (pytorch/pytorch#104505)",
)
DATA_DEPENDENT_SHAPE = Refusal(
    r"DynamicOutputShapeException|DataDependentOutputException|GuardOnDataDependentSymNode",
    "fake tensors have no numbers, so shapes that depend on numbers cannot be traced",
)

CONTRACT = Contract(
    waivers=(
        Waiver(
            Promise.IDENTITY,
            "the docstring of torch.func.functionalize copies new data back to mutated inputs and promises equal outputs;"
            " it says nothing of an output that is an input",
        ),
        Waiver(
            Promise.KEEPS_ALIASES,
            "its docstring shows a mutated input returned as the functional value, which no longer shares its storage",
        ),
        Waiver(Promise.STRIDE, "its docstring promises equivalent outputs and says nothing of their layout"),
        Waiver(Promise.OFFSET, "its docstring promises equivalent outputs and says nothing of their layout"),
        Waiver(Promise.INPUT_METADATA, "mutation of an input's metadata is not among what its docstring copies back"),
        Waiver(Promise.SAME_ERROR, "a functional op does not raise on overlapping memory where its in-place form must"),
    ),
    premises=(
        Premise(
            "written inputs are disjoint",
            "each input is wrapped as a base of its own; AOTAutograd handles inputs that share memory before it calls this",
            written_inputs_disjoint,
        ),
        Premise(
            "no as_strided with overlapping memory",
            "listed as failure mode (4) in the docstring of torch.func.functionalize",
            no_overlapping_as_strided,
        ),
    ),
    refusals=(OVERLAPPING_WRITE, AS_STRIDED_IN_CHAIN),
)

RECIPE = """
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx


def compiled(program, inputs):
    return make_fx(functionalize(program))(*inputs)
"""


def build(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Trace the functionalized function with these inputs."""
    graph = make_fx(functionalize(function))(*inputs)
    return Build(graph, [Stage("functionalized", graph)])


TARGET = Target(
    name="functionalize",
    summary="make_fx(torch.func.functionalize(f)), run in eager",
    contract=CONTRACT,
    build=build,
    recipe=RECIPE,
)
