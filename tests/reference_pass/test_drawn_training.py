"""Drawn programs in training, under the backend: three calls, each with a loss of some outputs.

All that a caller sees is as in eager: outputs, inputs, and the gradient of each leaf, which is None
where the loss does not depend on it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from aliasproof.generators.features import Features
from aliasproof.generators.scene import Counts
from aliasproof.generators.strategies import sample
from aliasproof.ir.execution import as_graph, seed_generators
from aliasproof.ir.values import input_tensors
from aliasproof.reference_pass.backend.dynamo_backend import aliasproof

PROGRAMS = 24


def with_leaves(inputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs, computed from new leaves, and the leaves: one per storage of one dtype."""
    made, leaves = list(inputs), []
    numbers = [x.untyped_storage()._cdata for x in inputs]
    for number in dict.fromkeys(numbers):
        views = {index: x for index, x in enumerate(inputs) if numbers[index] == number}
        dtypes = {x.dtype for x in views.values()}
        (dtype, *others) = dtypes
        if others or not (dtype.is_floating_point or dtype.is_complex):
            continue
        first = next(iter(views.values()))
        flat: Any = first.new_empty(0)
        leaves.append(flat.set_(first.untyped_storage()).requires_grad_())
        base = flat.clone()
        for index, x in views.items():
            made[index] = base.as_strided(x.shape, x.stride(), x.storage_offset())
    return made, leaves


def seen(value: Any) -> object:
    """What is compared of a value. `repr` tells NaN and the sign of zero."""
    if not isinstance(value, Tensor):
        return value
    return tuple(value.shape), value.stride(), repr(value.detach().resolve_conj().tolist())


def steps(call: Callable[..., Any], make: Callable[[], list[Tensor]], seed: int) -> list[object]:
    """What three calls, each with a backward pass from some outputs, leave behind."""
    draw, left = random.Random(seed), list[object]()
    for _ in range(3):
        seed_generators()
        inputs, leaves = with_leaves(make())
        outputs = call(*inputs)
        graded = [x for x in outputs if isinstance(x, Tensor) and x.requires_grad]
        loss = [x for x in graded if draw.random() < 0.5] or graded[:1]
        if loss:
            torch.autograd.backward(loss, list(map(torch.ones_like, loss)))
        left += map(seen, (*outputs, *inputs, *(leaf.grad for leaf in leaves)))
    return left


@pytest.mark.parametrize("seed", range(1000, 1000 + PROGRAMS))
def test_a_loss_of_some_outputs_gives_the_gradients_of_eager(seed: int) -> None:
    (program,) = sample(Features(), seed, 1, Counts())

    def make() -> list[Tensor]:
        return input_tensors(program)

    def graph() -> fx.GraphModule:
        return fx.GraphModule(torch.nn.Module(), as_graph(program))

    try:
        expected = steps(graph(), make, seed)
    except RuntimeError as error:
        pytest.skip(f"eager raises: {error}")
    assert steps(aliasproof(graph(), with_leaves(make())[0]), make, seed) == expected
