"""The scene of the oracles' tests: a function for eager and one for the target, or small graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, fx

from oracles.observation import Observation, observe, observe_eager
from oracles.stage import Stage
from programs.trace import Trace
from programs.values import clone_inputs

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
    """A stage from its inputs and calls: `stage("x y", ("sum", aten.add.Tensor, "x", "y"))`.

    A call is (name, target, arguments, ...). An argument that is the name of a value means the
    value. A dict at the end has the keyword arguments.
    """

    def build(
        inputs: str, *calls: tuple[Any, ...], returned: str = "", name: str = "reinplaced"
    ) -> Stage:
        graph = fx.Graph()
        nodes: dict[Any, Any] = {}
        for placeholder in inputs.split():
            nodes[placeholder] = graph.placeholder(placeholder)
        for result, target, *args in calls:
            kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
            arguments, named = fx.node.map_aggregate(
                (tuple(args), kwargs), lambda value: nodes.get(value, value)
            )
            op = "call_method" if isinstance(target, str) else "call_function"
            nodes[result] = graph.create_node(op, target, arguments, named, name=result)
        graph.output(tuple(nodes[output] for output in returned.split()))
        return Stage(name, fx.GraphModule(torch.nn.Module(), graph), functional=False)

    return build
