"""The target: what the compiler promises, how it is called, and how a reproducer calls it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aliasproof.oracles.contract import Contract
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing
from aliasproof.targets.variants import KEPT_OUTPUTS, options_of

from . import PLUGIN


def build(function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN) -> Build:
    from .machine import compiled  # the compiler may be missing

    run = compiled(function, tuple(inputs), shared="shared-inputs" in tracing.options)
    return Build(run, [], "the machine shows no graph")


def recipe(tracing: Tracing) -> str:
    return f"""
from toy_compiler import machine


def compiled(program, inputs):
    return machine.compiled(program, inputs, shared={"shared-inputs" in tracing.options})
"""


TARGET = Target(
    name="toy",
    summary="an interpreter of ATen calls in a package of its own",
    contract=Contract(),
    build=build,
    recipe=recipe(PLAIN),
    traced_recipe=recipe,
    variants=(KEPT_OUTPUTS, *options_of(PLUGIN)),
    needs=PLUGIN,
)
