"""Target *relax*: Relax of TVM, whose pass `DataflowUseInplaceCalls` puts calls in place.

A program becomes a Relax function, in which nothing is written (`relax_capture`). The pass replaces
some calls by kernels that compute into an operand. The result is run as ATen calls that share
memory as Relax says (`relax_graph`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aliasproof.oracles.contract import (
    Contract,
    Precondition,
    Promise,
    Waiver,
    mutates_no_input_metadata,
)
from aliasproof.oracles.stage import Stage
from aliasproof.targets import clauses
from aliasproof.targets.outside import Outside
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.variants import FEED_BACK, KEPT_OUTPUTS

NEEDS = Outside("relax", ("tvm.relax",))

VALUES = (
    "Relax computes with values, and a function that writes its arguments is not pure, so what"
    " shares memory is not said (docs/deep_dive/relax/learning.rst of TVM: 'the inplace operations"
    " are not encouraged')"
)
COMPACT = "tensors of Relax have a shape and a dtype, and no strides (tvm.relax.TensorType)"
CONSTANTS = "the graph has constants, of which value hashes know nothing"
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

RECIPE = """
from aliasproof.targets.relax import compiled  # of aliasproof
"""


def build(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Capture the function with these inputs, run the pass, and take both as graphs."""
    # Imported here: TVM takes seconds, and may not be installed.
    from tvm import relax  # noqa: PLC0415

    from aliasproof.targets.relax_capture import captured  # noqa: PLC0415
    from aliasproof.targets.relax_graph import graph_of  # noqa: PLC0415

    function_of_values = captured(function, inputs)
    module = function_of_values.module()
    in_place = relax.transform.DataflowUseInplaceCalls()(module)
    graph = graph_of(in_place, module, function_of_values, len(inputs))
    opaque = CONSTANTS if any(True for _ in graph.buffers()) else None
    return Build(graph, [Stage("DataflowUseInplaceCalls", graph, functional=False)], opaque)


def compiled(program: Function, inputs: Sequence[torch.Tensor]) -> Function:
    """The function that `build` makes."""
    return build(program, inputs).function


TARGET = Target(
    name="relax",
    summary="Relax of TVM with DataflowUseInplaceCalls, run as ATen calls",
    contract=CONTRACT,
    build=build,
    recipe=RECIPE,
    variants=(FEED_BACK, KEPT_OUTPUTS),
    unavailable=NEEDS.missing,
    broken=NEEDS.broken,
    generates_code=True,
)
