"""The scene of every oracle's tests: one function for eager, one that stands for what a target made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest
from torch import Tensor

from oracles.observation import Observation, observe, observe_eager
from programs.trace import Trace
from programs.values import clone_inputs

Runs: TypeAlias = tuple[Observation, Observation, Trace]
Function: TypeAlias = Callable[..., object]


@pytest.fixture
def runs() -> Callable[[Function, Function, Sequence[Tensor]], Runs]:
    """Both functions run on clones of the inputs: what an oracle takes after the contract, `judge(contract, *runs(...))`."""

    def run(eager: Function, target: Function, inputs: Sequence[Tensor]) -> Runs:
        expected, trace = observe_eager(eager, clone_inputs(inputs))
        return expected, observe(target, clone_inputs(inputs)), trace

    return run
