"""Missed opportunities: calls that could be in place or be removed, and calls that could not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.missed import Opportunity, missed_opportunities
from aliasproof.oracles.stage import Stage
from tests.oracles.scenes import stage

aten = torch.ops.aten
X = torch.arange(6.0)


def opportunities(function: Callable[..., object], *inputs: Tensor) -> list[Opportunity]:
    graph: fx.GraphModule = make_fx(function)(*clone_inputs(inputs))
    return missed_opportunities(
        Stage("final", graph, functional=False), lambda: clone_inputs(inputs)
    )


def test_an_op_on_what_nobody_needs_again() -> None:
    (one,) = opportunities(lambda x: (x + 1).relu(), X)
    assert one == Opportunity("relu", "aten.relu.default", "aten.relu_.default", 24)


ADD_ = ("aten.add.Tensor", "aten.add_.Tensor")
FOUND: dict[str, tuple[Callable[[Tensor], object], list[tuple[str, str]]]] = {
    "into the other operand": (
        lambda x: x - (x * 2),
        [("aten.sub.Tensor", "aten.sub.out into mul")],
    ),
    "an input is not to be written": (lambda x: x + 1, []),
    "but it may be if it is written at the end": (lambda x: x.copy_(x + 1), [ADD_]),
    "what is read later is not to be overwritten, by the first reader": (
        lambda x: (y := x + 1, y.sum() + (y * 2).sum())[1],
        [("aten.mul.Tensor", "aten.mul_.Tensor"), ADD_],
    ),
    "what is read later is not to be overwritten": (lambda x: ((y := x + 1) * 2, y), []),
    "values hide a difference": (lambda x: ((y := x * 0) + 0, y), []),
    "a scatter into what nobody needs again": (
        lambda x: torch.select_scatter(x + 1, x[0] * 2, 0, 1),
        [("aten.select_scatter.default", "aten.select.int and aten.copy_.default")],
    ),
    "a copy that is not needed": (
        lambda x: x.clone().sum(),
        [("aten.clone.default", "nothing: a copy that could go")],
    ),
    "a view copy that could be a view": (
        lambda x: aten.select_copy.int(x, 0, 1) + 1,
        [("aten.select_copy.int", "aten.select.int")],
    ),
    "a copy that is returned": (lambda x: x.clone(), []),
    "a copy of what is overwritten": (lambda x: (y := x.clone(), x.zero_(), y)[2], []),
    "random numbers are the same in each run": (lambda x: torch.rand_like(x) + x, [ADD_]),
    "a call that would read what it writes": (lambda x: (y := x + 0, y[:1] * y)[1], []),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_missed(name: str) -> None:
    function, expected = FOUND[name]
    assert [(each.op, each.instead) for each in opportunities(function, X)] == expected


def test_a_captured_tensor_is_not_to_be_written() -> None:
    graph = fx.Graph()
    product = graph.call_function(
        aten.mul.Tensor, (graph.get_attr("weight"), graph.placeholder("x"))
    )
    graph.output((graph.call_function(aten.neg.default, (product,)),))
    root = torch.nn.Module()
    root.weight = torch.nn.Buffer(X.clone())
    tested = Stage("final", fx.GraphModule(root, graph), functional=False)
    assert [each.instead for each in missed_opportunities(tested, lambda: [X.clone()])] == [
        "aten.neg_.default"
    ]
    assert torch.equal(root.weight, X)


def test_a_constant_stays_as_it_is() -> None:
    constant = X.clone()
    graph: fx.GraphModule = make_fx(lambda x: constant.mul(x).sum())(X)
    missed_opportunities(Stage("final", graph, functional=False), lambda: [X.clone()])
    assert torch.equal(constant, X)


def test_a_scatter_with_arguments_by_name() -> None:
    where = {"src": "y", "dim": 0, "start": 1, "end": 3}
    scatter = ("scatter", aten.slice_scatter.default, "neg", where)
    tested = stage("x y", ("neg", aten.neg.default, "x"), scatter, returned="scatter")
    found = missed_opportunities(tested, lambda: [X.clone(), X[:2].clone()])
    assert [each.instead for each in found] == ["aten.slice.Tensor and aten.copy_.default"]
