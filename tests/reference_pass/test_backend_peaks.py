"""The memory of the backend, in bytes that the allocator counts, beside that of other backends."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.models import bytes_of, compiled_by

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dynamo, about optimisers


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def peak(scene: Any, backend: str) -> int:
    torch._dynamo.reset()
    call = scene(compiled_by(backend))
    for _ in range(2):
        call()
    return bytes_of(call)[0]


def optimizer_step(compiled, kind=torch.optim.AdamW, **options):
    parameters = [nn.Parameter(torch.randn(64, 64)) for _ in range(3)]
    for parameter in parameters:
        parameter.grad = torch.randn(64, 64)
    optimizer = kind(parameters, lr=0.1, **options)
    optimizer.step()  # makes the state
    return compiled(optimizer.step)


def training_step(compiled):
    layers = [nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(0.1), nn.Linear(64, 32)]
    forward, x = compiled(nn.Sequential(*layers, *layers)), torch.randn(64, 32)
    return lambda: forward(x).square().mean().backward()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {"foreach": False}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.Adamax, {"foreach": True}),
        (torch.optim.RMSprop, {"foreach": True, "centered": True}),
    ],
)
def test_the_step_of_an_optimizer_holds_no_more_than_one_in_eager(kind, options):
    scene = functools.partial(optimizer_step, kind=kind, **options)
    parameter = 64 * 64 * 4
    assert peak(scene, "aliasproof") - peak(scene, "eager") < parameter / 10


def test_a_training_step_holds_no_more_than_under_aot_eager():
    assert peak(training_step, "aliasproof") <= 1.1 * peak(training_step, "aot_eager")


def test_a_small_result_keeps_its_own_bytes_alive():
    x = torch.ones(1000, 1000)
    row_of = compiled_by("aliasproof")(lambda x: (x + 1)[:1] * 2)

    def call():
        return row_of(x)

    call()
    assert bytes_of(call)[1] == 1000 * 4
