"""Target *aot-eager*: `torch.compile(backend="aot_eager")`, that is, AOTAutograd behind Dynamo."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from aliasproof.oracles.stage import Stage
from aliasproof.targets import aot, dynamo
from aliasproof.targets.clauses import BODY_CAPTURED_WHOLE, DOUBLE_BACKWARD, MIXED_BASES
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing
from aliasproof.targets.variants import CONTROL_FLOW, DECOMPOSE, GUARDED, SYMBOLIC

CONTRACT = replace(
    aot.CONTRACT,
    refusals=(*aot.CONTRACT.refusals, MIXED_BASES, DOUBLE_BACKWARD, BODY_CAPTURED_WHOLE),
)


def build(
    function: Function,
    inputs: Sequence[torch.Tensor],
    tracing: Tracing = PLAIN,
    *,
    further: aot.Pass | None = None,
) -> Build:
    """Compile by Dynamo and AOTAutograd in the first call. `further` is as in `aot.build`."""
    stages: list[Stage] = []
    captured = dynamo.compiled(function, backend(further, tracing, stages), tracing)
    return Build(captured, stages, replay=captured.replay)


def backend(
    further: aot.Pass | None, tracing: Tracing = PLAIN, stages: list[Stage] | None = None
) -> Any:
    """The backend that runs the graphs of AOTAutograd in eager, after the `further` pass if any."""
    # Imported here: it takes a second, and other targets do not need it.
    from torch._dynamo.backends.common import aot_autograd  # noqa: PLC0415
    from torch._functorch.partitioners import (  # noqa: PLC0415
        min_cut_rematerialization_partition,
    )

    compiler = functools.partial(aot.compile_graph, [] if stages is None else stages, further)
    return aot_autograd(
        fw_compiler=functools.partial(compiler, "forward graph"),
        bw_compiler=functools.partial(compiler, "backward graph"),
        inference_compiler=functools.partial(compiler, "inference graph"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=tracing.table,
        keep_inference_input_mutations=True,
    )


def recipe(tracing: Tracing = PLAIN) -> str:
    """The source of `build`."""
    if not tracing.decompose:
        return dynamo.recipe(tracing, "aot_eager")
    return f"""
{tracing.imports}from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition


def compiled(program, inputs):
    backend = aot_autograd(
        fw_compiler=lambda graph, _: make_boxed_func(graph),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions,
        keep_inference_input_mutations=True,
    )
    return torch.compile(program, backend=backend{tracing.dynamic})
"""


TARGET = Target(
    name="aot-eager",
    summary='torch.compile(backend="aot_eager"): AOTAutograd behind Dynamo, run in eager',
    contract=CONTRACT,
    build=build,
    traced_recipe=recipe,
    variants=(DECOMPOSE, SYMBOLIC, *GUARDED, *CONTROL_FLOW),
    after=aot.AOT,
    layer=dynamo.TARGET,
    cost=3,
    backend="aot_eager",
)
