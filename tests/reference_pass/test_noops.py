"""Erasing no-ops: what does nothing is erased, what a use can tell from its operand stays."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, fx

from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Contract
from aliasproof.reference_pass import checked, functionalize, pipeline, remove_noops
from aliasproof.reference_pass.eager.layout_conditions import no_use_of_location
from aliasproof.reference_pass.pipeline import NOOP_RULES, RemoveNoOps
from aliasproof.reference_pass.planning.noops import (
    copy_is_not_returned,
    original_is_not_overwritten,
    same_metadata,
    view_is_not_returned,
)
from aliasproof.targets.target import Build, Target

aten = torch.ops.aten


def calls_left(program, *inputs: Tensor) -> list[str]:
    graph_module = functionalize(program, *inputs)
    with checked():
        RemoveNoOps(*inputs)(graph_module)
    target = Target(
        "no-ops",
        "remove_noops",
        Contract(),
        lambda function, sample: Build(graph_module, []),
        recipe="",
    )
    assert run_trial(Case.of_function(program, inputs), target).judgement.violations == []
    return calls_of(graph_module)


def calls_of(graph_module: fx.GraphModule) -> list[str]:
    return [
        str(node.target).removeprefix("aten.")
        for node in graph_module.graph.nodes
        if node.op == "call_function"
    ]


X = torch.arange(1.0, 7)


def test_a_clone_that_no_use_can_tell_is_erased():
    assert calls_left(lambda x: x.clone() + 1, X) == ["add.Tensor"]


def test_a_clone_that_is_returned_stays_since_its_original_is_an_input():
    assert calls_left(lambda x: x.clone(), X) == ["clone.default"]


def test_a_clone_stays_if_its_original_is_returned_too():
    def program(x):
        y = x + 1
        return y, y.clone()

    assert calls_left(program, X) == ["add.Tensor", "clone.default"]


def test_a_clone_stays_if_it_would_alias_an_input_through_the_epilogue():
    def program(x):
        y = x.clone()
        x.copy_(y)
        return y

    assert "clone.default" in calls_left(program, X)


def test_one_copy_stays_if_its_original_is_overwritten_before_its_last_read():
    def program(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    assert calls_left(program, X, X + 6) == ["copy.default", "copy_.default", "copy_.default"]


def test_a_clone_that_is_read_only_before_the_epilogue_is_erased():
    def program(x):
        old = x.clone()
        x.add_(old * 2)

    assert "clone.default" not in calls_left(program, X)


def test_a_clone_in_another_layout_stays_if_a_use_depends_on_it():
    def program(x):
        return x.view(2, 3).t().clone(memory_format=torch.contiguous_format).view(6) + 1

    assert "clone.default" in calls_left(program, X)


def test_a_clone_stays_if_as_strided_depends_on_its_offset():
    assert "clone.default" in calls_left(lambda x: x[2:].clone().as_strided((2,), (1,), 0) + 1, X)


def test_a_copy_of_a_whole_storage_stays_if_a_scatter_reaches_around_it():
    def program(x, y):
        x.copy_(y)
        return torch.as_strided_scatter(x, torch.ones(2), (2,), (1,), 0)

    calls_left(program, torch.arange(2.0)[0], torch.tensor(5.0))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(6),
        lambda x: x.expand(6),
        lambda x: x[:],
        lambda x: x.permute(0),
        lambda x: x.detach(),
        lambda x: x.unsqueeze(0).squeeze(0),
    ],
    ids=["view", "expand", "slice", "permute", "detach", "there and back"],
)
def test_views_that_show_all_of_their_operand_are_erased(view):
    assert calls_left(lambda x: view(x) + 1, X) == ["add.Tensor"]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x[1:].copy_(x[:-1].clone()),
        lambda x: x[1:].copy_(x.clone()[:-1]),
        lambda x: x.copy_(x.t().clone()),
        lambda x: x.copy_(x.clone().t()),
        lambda x: x[0].copy_(x.clone()[:, 0]),
    ],
)
def test_a_copy_stays_if_it_is_stored_elsewhere_in_its_original(program):
    assert "clone.default" in calls_left(program, torch.arange(9.0).view(3, 3))


def test_a_copy_that_is_stored_where_it_came_from_is_erased():
    assert "clone.default" not in calls_left(lambda x: x[1:].copy_(x.clone()[1:]), X)


def test_a_view_that_is_returned_stays_another_object():
    assert calls_left(lambda x: (x, x.view(6)), X) == ["view.default"]


@pytest.mark.parametrize("same", [aten.contiguous.default, aten.resolve_neg.default])
def test_a_view_stays_that_a_composite_hands_on(same):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(same, (graph.call_function(aten.alias.default, (x,)),)))
    compiled = pipeline(fx.GraphModule(torch.nn.Module(), graph), X)
    assert compiled(X) is not X


def test_a_scatter_of_its_own_view_is_erased():
    assert calls_left(lambda x: torch.slice_scatter(x, x[2:], 0, 2) + 1, X) == ["add.Tensor"]


def test_a_cast_to_the_same_dtype_is_erased_and_one_to_another_stays():
    def program(x):
        same = aten._to_copy.default(x, dtype=torch.float32)
        return same + aten._to_copy.default(x, dtype=torch.float64)

    assert calls_left(program, X) == ["_to_copy.default", "add.Tensor"]


def test_it_does_nothing_twice():
    graph_module = remove_noops(functionalize(lambda x: x.clone().view(6) + 1, X), X)
    before = str(graph_module.graph)
    assert str(remove_noops(graph_module, X).graph) == before


def swapped(x, y):
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


KEPT_BY = {
    same_metadata: lambda x, y: aten._to_copy.default(x, dtype=torch.float64) + 1,
    view_is_not_returned: lambda x, y: (x, x.view(6)),
    copy_is_not_returned: lambda x, y: x.clone(),
    no_use_of_location: lambda x, y: x[2:].clone().as_strided((2,), (1,), 0) + 1,
    original_is_not_overwritten: swapped,
}


@pytest.mark.parametrize("rule", NOOP_RULES, ids=lambda rule: rule.__name__)
def test_each_rule_keeps_what_would_be_erased_without_it(rule):
    functional = functionalize(KEPT_BY[rule], X, X + 6)
    others = [other for other in NOOP_RULES if other is not rule]
    kept = calls_of(remove_noops(copy.deepcopy(functional)))
    assert len(calls_of(remove_noops(functional, rules=others))) < len(kept)
