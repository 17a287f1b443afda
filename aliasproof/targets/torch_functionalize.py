"""Target *functionalize*: `make_fx(functionalize(f))`, the graph run in eager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import fx
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.oracles.contract import (
    NATIVE,
    Contract,
    Precondition,
    Promise,
    Refusal,
    Waiver,
    as_strided_stays_inside,
    calls_a_custom_write,
    differentiates,
    draws_nothing,
    no_overlapping_as_strided,
    written_inputs_disjoint,
)
from aliasproof.oracles.stage import Stage
from aliasproof.targets import clauses
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing
from aliasproof.targets.variants import CAPTURED, DECOMPOSE, KEPT_OUTPUTS, SYMBOLIC

AUTOGRAD_INSIDE = Refusal(
    "autograd inside of a transform",
    r"inside (of a function being transformed by )?a functorch transform",
    "torch.func.functionalize is a functorch transform, and these neither set requires_grad nor run"
    " backward, as the error says (torch/csrc/functorch/init.cpp)",
    differentiates,
    raised_by=(NATIVE, "torch.autograd"),
)
CUSTOM_WRITE = Refusal(
    "custom operator that writes",
    r"Found a custom \(non-ATen\) operator whose output has alias annotations",
    "functionalization in C++ knows ATen operators alone, as the error says; AOTAutograd wraps"
    " custom operators in auto_functionalized",
    calls_a_custom_write,
)

RANDOM_ORDER = (
    "a random kernel fills memory in the order of its layout, and the docstring of"
    " torch.func.functionalize says nothing about layouts"
)
NO_LAYOUT = "its docstring promises equivalent outputs and says nothing about their layout"

CONTRACT = Contract(
    waivers=(
        Waiver(Promise.VALUES, RANDOM_ORDER, unless=draws_nothing),
        Waiver(Promise.INPUTS, RANDOM_ORDER, unless=draws_nothing),
        Waiver(
            Promise.IDENTITY,
            "the docstring of torch.func.functionalize copies new data back to mutated inputs and"
            " promises equal outputs; it says nothing about an output that is an input",
        ),
        Waiver(
            Promise.KEEPS_ALIASES,
            "its docstring shows a mutated input returned as the functional value, which no longer"
            " shares its storage",
        ),
        Waiver(Promise.STRIDE, NO_LAYOUT),
        Waiver(Promise.OFFSET, NO_LAYOUT),
        Waiver(
            Promise.INPUT_METADATA,
            "mutation of an input's metadata is not among what its docstring copies back",
        ),
        clauses.NO_OVERLAP_ERROR,
        clauses.OTHER_DECOMPOSITION,
        Waiver(
            Promise.GRAPHS,
            "its docstring promises nothing about the graph, and an op below it may mutate",
        ),
        clauses.FORGETFUL_CACHE,
        clauses.MISSING_METADATA,
    ),
    preconditions=(
        Precondition(
            "written inputs are disjoint",
            "each input is wrapped as a base of its own; AOTAutograd handles inputs that share"
            " memory before it calls this",
            written_inputs_disjoint,
        ),
        Precondition(
            "no as_strided with overlapping memory",
            "listed as failure mode (4) in the docstring of torch.func.functionalize",
            no_overlapping_as_strided,
        ),
        Precondition(
            "as_strided stays inside",
            "each input is wrapped as a base of its own, so the bytes around it in its storage"
            " cannot be read",
            as_strided_stays_inside,
        ),
        clauses.OVERLAP_BEYOND_EXPAND,
        clauses.LOCATION_IS_OPEN,
        clauses.READS_BEFORE_WRITES,
    ),
    refusals=(
        clauses.AS_STRIDED_IN_CHAIN,
        clauses.DATA_OF_A_TRACER,
        clauses.COMPILED_CODE_OR_REAL_TENSOR,
        clauses.NO_FAKE_KERNEL,
        clauses.OVERLAPPING_INPUT,
        AUTOGRAD_INSIDE,
        CUSTOM_WRITE,
        clauses.SET_TO_PLACE,
        clauses.MEMORY_LEFT_BY_SET,
        clauses.GROWTH_BESIDE_VIEWS,
    ),
    disputes=(clauses.DISPUTED_EXPAND,),
)


def recipe(tracing: Tracing = PLAIN) -> str:
    """The source of `build`."""
    return f"""
{tracing.imports}from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx


def compiled(program, inputs):
    return make_fx(functionalize(program){tracing.arguments()})(*inputs)
"""


def build(function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN) -> Build:
    """Trace the functionalized function with these inputs."""
    mode: Literal["real", "symbolic"] = "symbolic" if tracing.symbolic else "real"
    trace = make_fx(functionalize(function), tracing.table, mode)
    graph: fx.GraphModule = trace(*inputs)
    return Build(graph, [Stage("functionalized", graph, functional=True)])


TARGET = Target(
    name="functionalize",
    summary="make_fx(torch.func.functionalize(f)), run in eager",
    contract=CONTRACT,
    build=build,
    traced_recipe=recipe,
    variants=(DECOMPOSE, SYMBOLIC, CAPTURED, KEPT_OUTPUTS),
)
