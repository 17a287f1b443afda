"""Drawing how autograd sees a program: which inputs require gradients, which calls record none.

It counts for the variants with gradients alone, so it is drawn last.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.generators.scene import Pick, Scene
from aliasproof.ir.program import GRADIENTS, Program


def _differentiable(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def with_gradients(pick: Pick, scene: Scene, program: Program) -> Program:
    """The program with `no_grad` regions, and with inputs that are leaves or have no gradients."""
    storages = list(program.storages)
    differentiable = [i for i, x in enumerate(storages) if _differentiable(x.dtype)]
    for index in differentiable:
        if pick.chance(40):
            # One input at least requires gradients.
            kinds = GRADIENTS[1:] if index != differentiable[0] else ("leaf",)
            storages[index] = replace(storages[index], gradient=pick.one(kinds))
    leaves = {
        scene.values[view.name].untyped_storage()._cdata
        for view in program.inputs
        if storages[view.storage].gradient == "leaf"
    }
    start = pick.integer(0, len(program))
    stop = pick.integer(start, len(program)) if pick.chance(60) else start
    instructions = list(program.instructions)
    for index, instruction in enumerate(instructions):
        written = {scene.values[name].untyped_storage()._cdata for name in instruction.written}
        # Eager refuses to write a leaf where it records.
        if start <= index < stop or written & leaves:
            instructions[index] = replace(instruction, grad=False)
    return replace(program, storages=tuple(storages), instructions=tuple(instructions))
