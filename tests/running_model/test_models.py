"""Models under the check: no false alarm, and they compute what they compute without it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aliasproof.targets import inductor
from benchmarks.model_checks import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_judged_in_each_call_and_computes_the_same(checking, name: str) -> None:
    def run(backend: str) -> list[float]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        return MODELS[name](lambda function: torch.compile(function, backend=backend))

    expected = run("eager")
    with checking() as check:
        assert run("aot_eager") == expected
    assert check.differences == []
    assert check.graphs
    for graph in check.graphs:
        assert graph.counts.forward == graph.counts.calls
        assert graph.counts.unjudged == {}
    trains = "cache" not in name
    assert any(graph.counts.backward for graph in check.graphs) == trains


@pytest.mark.skipif(inductor.unavailable() is not None, reason="needs a C++ compiler")
def test_inductor_draws_and_rounds_as_it_may(checking) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.5), nn.LayerNorm(64))
    with checking() as check:
        compiled = torch.compile(model)
        for _ in range(3):
            compiled(100 * torch.randn(32, 64)).pow(2).mean().backward()
    assert check.differences == []
    (graph,) = check.graphs
    assert (graph.target.name, graph.counts.forward, graph.counts.backward) == ("inductor", 3, 3)
    assert graph.counts.unjudged == {}
