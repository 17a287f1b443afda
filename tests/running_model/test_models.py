"""Models under the check: no false alarm, and they compute what they compute without it."""

from __future__ import annotations

import pytest
import torch

from benchmarks.running_models import MODELS


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
