"""Kernels of ExecuTorch index a channels-last tensor as if its dims were in their order."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program
from aliasproof.ir.regions import dense_strides


def _has_another_order(program: Program) -> bool:
    return any(tensor.strides != dense_strides(tensor.sizes) for tensor in program.inputs)


BUG = KnownBug(
    "executorch-channels-last",
    "flip, gather and scatter of a channels-last tensor are wrong in ExecuTorch",
    "https://github.com/pytorch/executorch/pull/21828",
    program_of(
        """
        v0 = aten.flip.default(x0, [1])
        return (v0,)
        """,
        view(1, 2, 2, 2, strides=(8, 1, 4, 2)),
    ),
    ("executorch",),
    ("2.13",),
    mark=Mark(("values", "inputs"), "^wrong value|^input ends", _has_another_order, reduced=True),
    rank=2210,
)
