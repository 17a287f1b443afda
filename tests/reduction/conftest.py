"""Programs to reduce: drawn, and written by hand with superfluous lines."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from aliasproof.generators.features import Features, swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Program
from aliasproof.ir.validation import validate
from aliasproof.reduction.input_steps import drop_inputs, simplify_fill

PARTS = Features(
    dtypes=(torch.float32,),
    groups=("view",),
    layouts=("contiguous",),
    scenarios=(),
    large=False,
    gradients=False,
)


@pytest.fixture(scope="session")
def is_valid() -> Callable[[Program], bool]:
    """Whether a program is well formed."""

    def holds(program: Program) -> bool:
        try:
            validate(program)
        except UserError:
            return False
        return True

    return holds


@pytest.fixture(scope="session")
def drawn(is_valid: Callable[[Program], bool]) -> list[Program]:
    """Drawn programs, and programs as in the middle of a reduction, with one input fewer."""
    fresh = [program for seed in range(30) for program in sample(swarm(seed), seed, 2)]
    # Few drawn programs take parts of tensors by numbers that are 0 or 1.
    fresh += [program for seed in range(12) for program in sample(PARTS, seed, 2)]
    halfway = [next(drop_inputs(program), program) for program in fresh]
    # In the middle of a reduction, explicit values replace the special fill.
    named = [list(simplify_fill(program))[-1] for program in map(_special, fresh[:12])]
    return fresh + list(filter(is_valid, [*halfway, *map(_special, fresh[:12]), *named]))


def _special(program: Program) -> Program:
    return replace(program, fill="special")


# Unrelated inputs and calls of many kinds.
NOISE = """
    v0 = aten.add.Tensor(x0, x1, alpha=2)
    v1 = aten.transpose.int(v0, 0, 1)
    v2 = aten.cat.default([v0, x0], 1)
    v3, v4 = aten.split.Tensor(v2, 3, 1)
    aten.mul_.Tensor(v3, v4)
"""


@pytest.fixture
def noisy(program: Callable[..., Program]) -> Callable[[str], Program]:
    """The given instructions after unrelated ones, with inputs that share a storage."""

    def write(body: str) -> Program:
        written = program(f"{NOISE}{body}\n    return v1, v3, v4, x1, y", (3, 3), (3, 3), (3,))
        shared = replace(written.inputs[2], storage=1, offset=2)
        wide = replace(written.inputs[0], strides=(1, 3))
        return replace(written, inputs=(wide, written.inputs[1], shared), seed=5)

    return write
