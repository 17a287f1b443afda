"""Missed opportunities: what could be in place or be left out, and what could not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.missed import Opportunity, missed_opportunities
from aliasproof.oracles.stage import Stage

X = torch.arange(6.0)


def found(function: Callable[..., object], *inputs: Tensor) -> list[tuple[str, str]]:
    return [(each.op, each.instead) for each in opportunities(function, *inputs)]


def opportunities(function: Callable[..., object], *inputs: Tensor) -> list[Opportunity]:
    graph: fx.GraphModule = make_fx(function)(*clone_inputs(inputs))
    return missed_opportunities(
        Stage("final", graph, functional=False), lambda: clone_inputs(inputs)
    )


def test_an_op_on_what_nobody_needs_again() -> None:
    (one,) = opportunities(lambda x: (x + 1).relu(), X)
    assert one == Opportunity("relu", "aten.relu.default", "aten.relu_.default", 24)


def test_the_result_may_be_written_into_the_other_operand() -> None:
    ((op, instead),) = found(lambda x: x - (x * 2), X)
    assert (op, instead) == ("aten.sub.Tensor", "aten.sub.out into mul")


def test_an_input_is_not_to_be_written() -> None:
    assert found(lambda x: x + 1, X) == []


def test_but_it_may_be_if_it_is_written_at_the_end() -> None:
    assert found(lambda x: x.copy_(x + 1), X) == [("aten.add.Tensor", "aten.add_.Tensor")]


def test_what_is_read_later_is_not_to_be_overwritten() -> None:
    assert found(lambda x: (y := x + 1, y.sum() + (y * 2).sum())[1], X) == [
        ("aten.mul.Tensor", "aten.mul_.Tensor"),
        ("aten.add.Tensor", "aten.add_.Tensor"),
    ]
    assert found(lambda x: ((y := x + 1) * 2, y), X) == []


def test_values_that_hide_a_difference_do_not_make_an_opportunity() -> None:
    assert found(lambda x: ((y := x * 0) + 0, y), X) == []


def test_a_scatter_into_what_nobody_needs_again() -> None:
    function = lambda x: torch.select_scatter(x + 1, x[0] * 2, 0, 1)  # noqa: E731
    assert found(function, X) == [
        ("aten.select_scatter.default", "aten.select.int and aten.copy_.default")
    ]


def test_a_copy_that_is_not_needed_and_one_that_is() -> None:
    assert found(lambda x: x.clone().sum(), X) == [
        ("aten.clone.default", "nothing: a copy that could go")
    ]
    assert found(lambda x: x.clone(), X) == []
    assert found(lambda x: (y := x.clone(), x.zero_(), y)[2], X) == []


def test_random_numbers_are_the_same_in_each_run() -> None:
    assert found(lambda x: torch.rand_like(x) + x, X) == [("aten.add.Tensor", "aten.add_.Tensor")]


def test_a_view_copy_that_could_be_a_view() -> None:
    assert found(lambda x: torch.ops.aten.select_copy.int(x, 0, 1) + 1, X)[0] == (
        "aten.select_copy.int",
        "aten.select.int",
    )


def test_a_call_that_would_read_what_it_writes_is_not_an_opportunity() -> None:
    assert found(lambda x: (y := x + 0, y[:1] * y)[1], X) == []


def test_a_captured_tensor_is_not_to_be_written() -> None:
    graph = fx.Graph()
    product = graph.call_function(
        torch.ops.aten.mul.Tensor, (graph.get_attr("weight"), graph.placeholder("x"))
    )
    graph.output((graph.call_function(torch.ops.aten.neg.default, (product,)),))
    root = torch.nn.Module()
    root.weight = torch.nn.Buffer(X.clone())
    stage = Stage("final", fx.GraphModule(root, graph), functional=False)
    assert [each.instead for each in missed_opportunities(stage, lambda: [X.clone()])] == [
        "aten.neg_.default"
    ]
    assert torch.equal(root.weight, X)


def test_a_constant_stays_as_it_is() -> None:
    constant = X.clone()
    graph: fx.GraphModule = make_fx(lambda x: constant.mul(x).sum())(X)
    missed_opportunities(Stage("final", graph, functional=False), lambda: [X.clone()])
    assert torch.equal(constant, X)


def test_a_scatter_with_arguments_by_name() -> None:
    graph = fx.Graph()
    negative = graph.call_function(torch.ops.aten.neg.default, (graph.placeholder("x"),))
    source = graph.placeholder("y")
    scatter = torch.ops.aten.slice_scatter.default
    graph.output(
        (
            graph.call_function(
                scatter, (negative,), {"src": source, "dim": 0, "start": 1, "end": 3}
            ),
        )
    )
    stage = Stage("final", fx.GraphModule(torch.nn.Module(), graph), functional=False)
    found = missed_opportunities(stage, lambda: [X.clone(), X[:2].clone()])
    assert [each.instead for each in found] == ["aten.slice.Tensor and aten.copy_.default"]
