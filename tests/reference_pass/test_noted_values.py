"""An analysis with noted values is that of a run, and runs only the calls that it must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.reference_pass.alias_analysis import Analysis, analyse
from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.eager import fake_execution
from aliasproof.reference_pass.eager.noted_values import NotedValues
from aliasproof.reference_pass.eager.torch_semantics import EAGER
from aliasproof.reference_pass.pipeline import pipeline
from tests.reference_pass.graphs import analysis_of

aten = torch.ops.aten
GRID = torch.arange(12.0).view(3, 4)


def traced(function: Callable[..., Any], *args: Tensor) -> fx.GraphModule:
    """A graph with the metadata of a run on fakes."""
    return make_fx(function, tracing_mode="fake")(*args)


def described(graph_module: fx.GraphModule, analysis: Analysis) -> Any:
    """All geometries, by node. Storages are numbered in order of first use."""
    return {
        node.name: [geometry.key for geometry in effect.shows.values()]
        for node, effect in analysis.effects.items()
    }


def noted_analysis(graph_module: fx.GraphModule, args: Sequence[object]) -> Analysis:
    return analyse(graph_module, args, replace(EAGER, run=NotedValues().run))


def runs_of(graph_module: fx.GraphModule, *args: Any) -> list[str]:
    """The calls that run on fakes; the analysis must be that of a run of all."""
    expected = described(graph_module, analysis_of(graph_module, args))
    with mock.patch.object(fake_execution, "run_call", wraps=fake_execution.run_call) as run:
        actual = described(graph_module, noted_analysis(graph_module, args))
    assert actual == expected
    return [str(call.args[0].target) for call in run.call_args_list]


def views_and_sums(x: Tensor) -> Any:
    first, second = aten.split.Tensor(x, 2, 1)
    sums = aten._foreach_add.List([first, second], [second, first])
    return sums[0].t(), aten._unsafe_view(sums[1], [6]), x[1:].unsqueeze(0)


def test_no_call_runs_for_inputs_as_noted():
    assert runs_of(traced(views_and_sums, GRID), GRID) == []


def unscaled(x: Tensor, found: Tensor, scale: Tensor) -> Any:
    pairs, found = aten._amp_foreach_non_finite_check_and_unscale([x], found, scale)
    return pairs[0] + 1, found + 1


def test_a_list_within_a_result():
    args = (GRID, torch.zeros(1), torch.ones(1))
    assert runs_of(traced(unscaled, *args), *args) == []


def test_an_input_at_another_offset():
    elsewhere = torch.zeros(100).as_strided((3, 4), (4, 1), 7)
    assert runs_of(traced(views_and_sums, GRID), elsewhere) == []


@pytest.mark.parametrize("other", [GRID[:2], GRID.t().contiguous().t(), GRID.double()])
def test_calls_run_for_inputs_of_another_layout(other):
    def program(x):
        return x.t() + 1, x[1:].unsqueeze(0)

    assert len(runs_of(traced(program, GRID), other)) == 4


def test_inputs_that_share_a_storage_only_in_one_of_both():
    def both(x, y):
        return x.t(), y.t(), x + y

    apart, shared = (GRID.clone(), GRID.clone()), (GRID, GRID.view(3, 4))
    assert runs_of(traced(both, *apart), *shared) == ["aten.t.default", "aten.add.Tensor"]
    # For the second input a trace of the same tensors has a storage of its own.
    graph_module = traced(lambda x: (x.t(), x.view(12).view(3, 4).t()), GRID)
    assert runs_of(graph_module, GRID) == []


@pytest.mark.parametrize(
    ("function", "runs"),
    [
        (lambda x: aten.as_strided(x, [2], [1], 3) + 1, ["aten.as_strided.default"]),
        (lambda x: x.view(torch.int32) + 1, ["aten.view.dtype"]),
        (lambda x: aten.fill.Scalar(x, 1), ["aten.fill.Scalar"]),
        (lambda x: aten.slice_scatter(x, x[1:], 0, 1), ["aten.slice_scatter.default"]),
        (lambda x: x.clone().add_(1), ["aten.add_.Tensor"]),
        (lambda x: aten.xlogy.Tensor(x, x), []),
        (lambda x: aten.xlogy.Tensor(x, x.t().contiguous().t()), ["aten.xlogy.Tensor"]),
        (lambda x: x.copy_(x + 1), []),
    ],
)
def test_calls_that_run_all_the_same(function, runs):
    assert runs_of(traced(function, GRID), GRID) == runs


def test_a_view_that_is_noted_on_a_storage_of_its_own_runs():
    graph_module = traced(lambda x: x.t() + 1, GRID)
    (view,) = graph_module.graph.find_nodes(op="call_function", target=aten.t.default)
    mode = view.meta["val"].fake_mode
    with mode:
        view.meta["val"] = torch.empty_strided((4, 3), (1, 4))
    # The run disagrees with the note, so the calls after it run, too.
    assert runs_of(graph_module, GRID) == ["aten.t.default", "aten.add.Tensor"]


def test_a_graph_without_notes():
    graph_module = traced(views_and_sums, GRID)
    for node in graph_module.graph.nodes:
        node.meta.clear()
    assert "aten.split.Tensor" in runs_of(graph_module, GRID)


def test_the_values_are_new_fakes():
    graph_module = traced(views_and_sums, GRID)
    analysis = noted_analysis(graph_module, [GRID])
    for node, effect in analysis.effects.items():
        for value in torch.utils._pytree.tree_leaves(effect.value):
            assert isinstance(value, FakeTensor)
            assert value.fake_mode is analysis.mode
            assert value is not node.meta["val"]


def test_the_values_are_of_the_mode_of_the_inputs():
    graph_module = traced(views_and_sums, GRID)
    given = FakeTensorMode().from_tensor(GRID)
    for effect in noted_analysis(graph_module, [given]).effects.values():
        for value in torch.utils._pytree.tree_leaves(effect.value):
            assert value.fake_mode is given.fake_mode


def test_a_training_step_runs_no_product_on_fakes():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    torch._dynamo.reset()
    with mock.patch.object(fake_execution, "run_call", wraps=fake_execution.run_call) as run:
        torch.compile(model, backend=aliasproof)(torch.ones(5, 3)).sum().backward()
    assert not any("mm" in str(call.args[0].target) for call in run.call_args_list)


def test_code_is_written_for_the_last_graph_alone():
    graph_module = traced(lambda x: (x + 1).mul_(2), GRID)
    with mock.patch.object(
        fx.Graph, "python_code", autospec=True, side_effect=fx.Graph.python_code
    ) as written:
        compiled = pipeline(graph_module, GRID)
        assert written.call_count == 0
        assert torch.equal(compiled(GRID), (GRID + 1) * 2)
    assert written.call_count == 1
