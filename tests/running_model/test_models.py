"""Models under the check: no false alarm, and they compute what they compute without it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aliasproof.ir.devices import cpu_capability
from aliasproof.targets import inductor
from tests.running_model.models import MODELS


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


@pytest.mark.vectors
@pytest.mark.skipif(cpu_capability() == "DEFAULT", reason="a store of a vector writes too far")
@pytest.mark.skipif(inductor.unavailable() is not None, reason="needs a C++ compiler")
def test_a_write_behind_a_buffer_is_a_difference(checking) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.index_fill(1, torch.tensor([0]), 0.5)
        return (y * y.flip(2)).sum(-1)

    with checking() as check:
        torch.compile(function, dynamic=True)(torch.rand(64, 5, 5).mT)
    ((oracle, kind),) = {(it.violation.oracle, it.violation.kind) for it in check.differences}
    assert (oracle, kind) == ("bounds", "writes behind the end of a buffer")
