"""Target *export*: `torch.export.export`, then `run_decompositions`, the exported module in eager.

The exported graph has the mutations of the function. `run_decompositions` functionalizes it by
AOTAutograd, and returns the new contents of mutated inputs. `module()` adds the calls of `copy_`
that write these back.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.export.graph_signature import InputKind

from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.contract import (
    Contract,
    Precondition,
    Promise,
    Refusal,
    Waiver,
    depends_on_data,
    is_merged,
    mutates_no_input_metadata,
    writes_no_input,
)
from aliasproof.oracles.stage import Stage
from aliasproof.targets import aot, clauses
from aliasproof.targets.target import MODULE, Build, Function, Target
from aliasproof.targets.variants import BUFFERS, KEPT_BUFFERS

BANS = "the docstring of aot_export_module in torch/_functorch/aot_autograd.py"
NEW_CONTENTS = (
    f"the new contents of inputs are outputs of the graph, and are copied back ({BANS}): an output"
    " that is a view of a mutated input is a view of these"
)
NUMBER_FROM_DATA = Refusal(
    "number that is read from a tensor",
    "",
    "an export has no data, and an operator that reads a number from a tensor needs a kernel for"
    " such numbers, as the error says (pytorch/pytorch#138073)",
    depends_on_data,
    ("PendingUnbackedSymbolNotFound",),
    ("torch.fx.experimental",),
)
CONTRACT = Contract(
    waivers=(
        Waiver(Promise.KEEPS_ALIASES, NEW_CONTENTS, unless=writes_no_input),
        Waiver(Promise.STRIDE, NEW_CONTENTS, unless=writes_no_input),
        Waiver(Promise.OFFSET, NEW_CONTENTS, unless=writes_no_input),
        clauses.NO_OVERLAP_ERROR,
        Waiver(
            Promise.EQUIVALENCE,
            "operators are decomposed to the core ATen set (docstring of run_decompositions)",
        ),
        Waiver(Promise.GRAPHS, "the exported graph mutates where the function does"),
        clauses.FORGETFUL_CACHE,
        clauses.MISSING_METADATA,
    ),
    preconditions=(
        Precondition(
            "mutated inputs overlap no other input",
            f"'If an input is mutated, it is not allowed to alias any other inputs' ({BANS})",
            lambda trace: not any(is_merged(trace, it) for it in range(len(trace.inputs))),
        ),
        Precondition(
            "metadata of inputs stays",
            f"'Metadata mutations on params/buffers/inputs are banned' ({BANS})",
            mutates_no_input_metadata,
        ),
        clauses.OVERLAP_BEYOND_EXPAND,
    ),
    refusals=(
        NUMBER_FROM_DATA,
        clauses.AS_STRIDED_IN_CHAIN,
        clauses.DATA_OF_A_TRACER,
        clauses.NO_FAKE_KERNEL,
        clauses.OVERLAPPING_INPUT,
        clauses.DATA_DEPENDENT_SHAPE,
    ),
    disputes=(clauses.DISPUTED_EXPAND,),
)

RECIPE = f"""{MODULE}
def compiled(program, inputs):
    return torch.export.export(Module(program), tuple(inputs)).run_decompositions().module()
"""


class FunctionModule(torch.nn.Module):
    """A module that calls a function: `torch.export` takes modules."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> object:
        """Call it."""
        return self.function(*inputs)


def build(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Export with these inputs, without Dynamo (`strict=False` is the default)."""
    given = clone_inputs(inputs)
    exported = torch.export.export(FunctionModule(function), tuple(inputs))
    decomposed = exported.run_decompositions(core_aten())
    stages = []
    for name, program in (("exported graph", exported), ("decomposed graph", decomposed)):
        captured: dict[Any, Any] = {**program.constants, **program.state_dict}
        rest = iter(given)
        arguments: list[object] = [
            next(rest) if spec.kind is InputKind.USER_INPUT else captured[spec.target]
            for spec in program.graph_signature.input_specs
        ]
        functional = program is decomposed
        stages.append(Stage(name, program.graph_module, functional, False, arguments))
    return Build(decomposed.module(), stages)


@functools.cache
def core_aten() -> Any:
    """The default decompositions of `run_decompositions`; cached, as finding them takes 0.1 s."""
    return cast("Any", torch.export.default_decompositions()).materialize()


TARGET = Target(
    name="export",
    summary="torch.export.export and run_decompositions, the exported module run in eager",
    contract=CONTRACT,
    build=build,
    recipe=RECIPE,
    variants=(BUFFERS, KEPT_BUFFERS),
    # It functionalizes with AOTAutograd, called in another way.
    layer=aot.AOT,
    cost=3,
)
