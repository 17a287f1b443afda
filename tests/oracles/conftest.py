"""The scene of the oracles' tests: a function for eager and one for the target, or small graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from torch import Tensor

from aliasproof.eager.trace import Trace
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.observation import Observation, observe, observe_eager
from aliasproof.oracles.stage import Stage
from tests.oracles.graphs_of_calls import graph_of

Runs: TypeAlias = tuple[Observation, Observation, Trace]
Function: TypeAlias = Callable[..., object]


@pytest.fixture
def runs() -> Callable[[Function, Function, Sequence[Tensor]], Runs]:
    """Runs two functions on clones of inputs: `judge(contract, *runs(eager, target, inputs))`."""

    def run(eager: Function, target: Function, inputs: Sequence[Tensor]) -> Runs:
        expected, trace = observe_eager(eager, clone_inputs(inputs))
        return expected, observe(target, clone_inputs(inputs)), trace

    return run


@pytest.fixture
def stage() -> Callable[..., Stage]:
    """A stage that may mutate, from its inputs and calls; see `graph_of`."""

    def build(
        inputs: str, *calls: tuple[Any, ...], returned: str = "", name: str = "reinplaced"
    ) -> Stage:
        return Stage(name, graph_of(inputs, *calls, returned=returned), functional=False)

    return build
