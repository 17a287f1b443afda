"""Target *relax*: Relax of TVM, whose pass `DataflowUseInplaceCalls` puts calls in place.

A program becomes a Relax function without writes (`relax_capture`). The pass replaces some calls by
kernels that compute into an operand. The result runs as ATen calls that share memory as Relax says
(`relax_graph`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from aliasproof.compilers.relax import PLUGIN
from aliasproof.compilers.relax.patches import spelling
from aliasproof.ir.program import Program
from aliasproof.oracles.contract import (
    Contract,
    Precondition,
    Promise,
    Waiver,
    mutates_no_input_metadata,
)
from aliasproof.oracles.stage import Stage
from aliasproof.targets import clauses
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.variants import FEED_BACK, KEPT_OUTPUTS

VALUES = (
    "Relax computes with values, and a function that writes its arguments is not pure, so what"
    " shares memory is not said (docs/deep_dive/relax/learning.rst of TVM: 'the inplace operations"
    " are not encouraged')"
)
COMPACT = "tensors of Relax have a shape and a dtype, and no strides (tvm.relax.TensorType)"
IN_PLACE = "DataflowUseInplaceCalls"
CONSTANTS = "the graph has constants, of which value hashes know nothing"
MACHINE = "the virtual machine of TVM shows no graph"
CONTRACT = Contract(
    waivers=(
        *(
            Waiver(promise, VALUES)
            for promise in (
                Promise.NO_NEW_ALIAS,
                Promise.KEEPS_ALIASES,
                Promise.IDENTITY,
                Promise.OBJECTS,
                Promise.KEEPS_OBJECTS,
            )
        ),
        Waiver(Promise.STRIDE, COMPACT),
        Waiver(Promise.OFFSET, COMPACT),
        clauses.NO_OVERLAP_ERROR,
        clauses.OTHER_DECOMPOSITION,
        Waiver(Promise.GRAPHS, "calls in place are what the pass is for"),
        clauses.MISSING_METADATA,
    ),
    preconditions=(
        Precondition(
            "metadata of inputs stays",
            "a function of Relax has no way to change the shape of an argument",
            mutates_no_input_metadata,
        ),
        clauses.OVERLAP_BEYOND_EXPAND,
        clauses.LOCATION_IS_OPEN,
        clauses.READS_BEFORE_WRITES,
    ),
    disputes=(clauses.DISPUTED_EXPAND,),
)


def build(
    function: Function,
    inputs: Sequence[torch.Tensor],
    passes: Sequence[str] = (),
    *,
    by_functions: bool = False,
    by_machine: bool = False,
) -> Build:
    """Capture the function with these inputs, run the pass and others, and convert it to a graph.

    With `by_machine`, TVM compiles the module, and its virtual machine runs it.
    """
    # Imported here: TVM takes seconds, and may not be installed.
    from tvm import relax  # noqa: PLC0415

    from aliasproof.compilers.relax.relax_capture import captured  # noqa: PLC0415
    from aliasproof.compilers.relax.relax_graph import graph_of, machine_of  # noqa: PLC0415

    written = replace(spelling(), by_functions=by_functions)
    function_of_values = captured(function, inputs, written)
    before = after = function_of_values.module()
    for name in (IN_PLACE, *passes):
        after = getattr(relax.transform, name)()(after)
    if by_machine:
        return Build(machine_of(after, function_of_values), [], MACHINE)
    graph = graph_of(after, before, function_of_values, len(inputs))
    opaque = CONSTANTS if any(True for _ in graph.buffers()) else None
    return Build(graph, [Stage(" and ".join((IN_PLACE, *passes)), graph, functional=False)], opaque)


RECIPE = """
from aliasproof.compilers.relax import relax


def compiled(program, inputs):
BUILT"""


def _with_module(
    built: str, passes: Sequence[str], by_functions: bool, recipe: str, program: Program
) -> str:
    """A recipe with the module of a program in place of the line that builds it."""
    if built not in recipe:
        return recipe
    from aliasproof.compilers.relax.relax_script import with_module  # noqa: PLC0415 - as in `build`

    return with_module(recipe, built, (IN_PLACE, *passes), by_functions, program)


def _target(
    name: str,
    summary: str,
    *,
    passes: Sequence[str] = (),
    by_functions: bool = False,
    by_machine: bool = False,
    after: Target | None = None,
    cost: float = 1.0,
) -> Target:
    options = {"passes": passes, "by_functions": by_functions, "by_machine": by_machine}
    chosen: dict[str, Any] = {option: value for option, value in options.items() if value}
    given = "".join(f", {option}={value}" for option, value in chosen.items())
    built = f"    return relax.build(program, inputs{given}).function\n"
    return Target(
        name=name,
        summary=summary,
        contract=CONTRACT,
        build=functools.partial(build, **chosen),
        recipe=RECIPE.replace("BUILT", built),
        recipe_for=functools.partial(_with_module, built, passes, by_functions),
        variants=(FEED_BACK, KEPT_OUTPUTS),
        after=after,
        needs=PLUGIN,
        cost=cost,
        generates_code=True,
    )


TARGET = _target("relax", f"Relax of TVM with {IN_PLACE}, run as ATen calls")


def _followed_by(name: str, *passes: str) -> Target:
    """The target with other passes after the one that puts calls in place."""
    return _target(name, f"the same, then {' and '.join(passes)}", passes=passes, after=TARGET)


SHARED = _followed_by("relax-shared", "EliminateCommonSubexpr")
SORTED = _followed_by("relax-sorted", "TopologicalSort")
BY_FUNCTIONS = "the same, where private functions return the constants, and packed functions write"
CALLS = _target("relax-calls", BY_FUNCTIONS, by_functions=True)
VM = _target(
    "relax-vm",
    f"Relax of TVM with {IN_PLACE}, compiled for LLVM and run by its virtual machine",
    by_machine=True,
    after=TARGET,
    cost=5,
)
VM_CALLS = _target(
    "relax-vm-calls", BY_FUNCTIONS, by_functions=True, by_machine=True, after=CALLS, cost=5
)
