"""Graphs of Python operators, as Dynamo and `symbolic_trace` make them: `x[1:]`, `x += 1`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.reference_pass.capture.aten_graphs import is_aten
from aliasproof.reference_pass.pipeline import pipeline

FLOATS = (torch.arange(1.0, 5), torch.arange(4.0))
INTS = (torch.arange(1, 5), torch.arange(4))

Call = tuple[Any, ...]


def graph_of(*calls: Call) -> fx.GraphModule:
    """A graph on `x` and `y`: each call is (op, *args), where `z` is the result of the last one."""
    graph = fx.Graph()
    nodes = {"x": graph.placeholder("x"), "y": graph.placeholder("y")}
    for op, *args in calls:
        nodes["z"] = graph.call_function(
            op, tuple(nodes.get(each, each) if isinstance(each, str) else each for each in args)
        )
    graph.output((nodes["z"], nodes["x"]))
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize(
    ("calls", "inputs"),
    [
        ([(operator.getitem, "x", slice(1, None))], FLOATS),
        ([(operator.getitem, "x", slice(1, None)), (operator.neg, "z")], FLOATS),
        ([(operator.getitem, "x", (None, 1))], FLOATS),
        ([(operator.getitem, "x", [0, 2])], FLOATS),
        ([(operator.getitem, "x", "y")], INTS),
        ([(operator.iadd, "x", 1)], FLOATS),
        (
            [(operator.getitem, "x", slice(1, None)), (operator.imul, "z", "y")],
            (FLOATS[0], INTS[0][:3]),
        ),
        ([(operator.setitem, "x", 0, 5)], FLOATS),
        ([(operator.setitem, "x", slice(1, None), "y")], (FLOATS[0], FLOATS[1][:3])),
        ([(operator.setitem, "x", 1, 7), (operator.add, "x", "y")], FLOATS),
        ([(operator.matmul, "x", "y")], FLOATS),
        ([(operator.abs, "x")], FLOATS),
        ([(operator.xor, "x", "y")], INTS),
        ([(operator.lshift, "x", 1)], INTS),
        ([(operator.invert, "x")], INTS),
    ],
)
def test_a_python_operator_on_tensors_is_traced(calls: list[Call], inputs: tuple[Tensor, ...]):
    program = graph_of(*calls)
    given, copies = ([each.clone() for each in inputs] for _ in range(2))
    expected, actual = program(*given), pipeline(program, *inputs)(*copies)
    assert str((expected, given)) == str((actual, copies))


@pytest.mark.parametrize(
    ("program", "aten"),
    [
        (make_fx(lambda x: x.split(2)[1] + x.shape[0])(FLOATS[0]), True),
        (make_fx(lambda x: x.view(x.shape[0] // 2, -1), tracing_mode="symbolic")(FLOATS[0]), True),
        (graph_of((operator.add, "x", "y")), False),
        (graph_of((operator.getitem, "x", 0)), False),
    ],
)
def test_arithmetic_on_sizes_and_picked_results_are_aten_calls(program, aten):
    assert is_aten(program) == aten


def transforms() -> list[Callable[[Tensor], Any]]:
    def writes_through_a_view(x: Tensor) -> Tensor:
        y = x * 1
        y[1:].mul_(3)
        return (y * x).sum()

    return [
        torch.func.grad(writes_through_a_view),
        torch.func.jacrev(lambda x: x * x),
        torch.func.hessian(lambda x: (x**3).sum()),
        torch.func.vmap(torch.func.grad(lambda x: x.sin() * x)),
        lambda x: torch.func.vjp(lambda y: y * y, x)[1](x),
        lambda x: torch.func.jvp(lambda y: y * y, (x,), (x,)),
    ]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # imported by torch's jvp
@pytest.mark.parametrize("transform", transforms())
@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_that_the_function_takes_are_captured(transform, enabled):
    with torch.set_grad_enabled(enabled):
        expected = transform(FLOATS[0].clone())
        assert str(pipeline(transform, FLOATS[0])(FLOATS[0].clone())) == str(expected)
