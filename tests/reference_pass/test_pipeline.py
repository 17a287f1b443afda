"""The passes as `PassBase`: each checks what it requires and ensures, and finds planted faults."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.infra.pass_manager import PassManager

from aliasproof.reference_pass import (
    CONDITIONS,
    Broken,
    Functionalize,
    Refused,
    Reinplace,
    RemoveNoOps,
    checked,
    functionalize,
    pipeline,
    reinplace,
    update_metadata,
)
from aliasproof.reference_pass import conditions as all_conditions
from aliasproof.reference_pass.calls.invariants import (
    aliases_at_end,
    is_functional,
    no_copy_reads_what_it_writes,
)

aten = torch.ops.aten
X = torch.arange(1.0, 7)


def program(x):
    x.view(2, 3)[0].add_(1)
    return x * 2


def with_metadata(function: Callable[..., Any]) -> fx.GraphModule:
    """The graph of a function of `x` and `y` on ATen operators."""
    graph_module = fx.symbolic_trace(function)
    update_metadata(graph_module, X, X + 1)
    return graph_module


def test_they_plug_into_the_pass_manager_of_torch():
    manager = PassManager(passes=[RemoveNoOps(X), Reinplace(X)])
    functional = functionalize(program, X)
    with checked():
        result = manager(functional)
    assert result.modified
    assert "add_" in str(result.graph_module.graph)


def test_functionalize_as_a_pass_gives_a_new_graph():
    traced = make_fx(program)(X.clone())
    result = Functionalize(X)(traced)
    assert result is not None
    assert result.graph_module is not traced
    assert is_functional(result.graph_module) is None


def test_reinplace_refuses_a_graph_with_mutation_whether_checked_or_not():
    traced = with_metadata(lambda x, y: aten.mul_.Tensor(aten.add.Tensor(x, 1), 2))
    with checked(), pytest.raises(Broken, match="Reinplace requires is_functional"):
        Reinplace(X, X + 1)(traced)
    with pytest.raises(Refused, match="functionalize the graph first"):
        reinplace(traced, X, X + 1)


@pytest.mark.parametrize(
    ("function", "invariant", "reason"),
    [
        (
            lambda x, y: (aten.copy_.default(x, y), aten.add.Tensor(x, 1)),
            is_functional,
            "computes after the epilogue began",
        ),
        (
            lambda x, y: aten.copy_.default(aten.add.Tensor(x, 1), y),
            is_functional,
            "writes to what is not an input",
        ),
        (
            lambda x, y: aten.copy_.default(*(aten.slice.Tensor(x, 0, i, i + 4) for i in (0, 1))),
            no_copy_reads_what_it_writes,
            "reads what it writes",
        ),
    ],
)
def test_what_is_planted_in_a_graph_is_found(function, invariant, reason):
    assert reason in invariant(with_metadata(function))


def test_a_result_written_into_an_input_that_is_returned_is_found():
    left = [
        each
        for each in CONDITIONS
        if each not in (all_conditions.no_new_alias, all_conditions.not_an_input)
    ]
    functional = functionalize(lambda x: x + 1, X)
    with checked(), pytest.raises(Broken, match="ensures no new aliasing"):
        Reinplace(X, conditions=left)(functional)


def test_aliases_are_named_by_the_index_of_the_output():
    graph_module = with_metadata(lambda x, y: aten.view.default(x, [2, 3]))
    assert aliases_at_end(graph_module) == {("x", "output 0")}


def test_checks_are_off_in_use_and_on_in_their_context(monkeypatch):
    calls: list[str] = []

    def invariant(graph_module: fx.GraphModule) -> None:
        calls.append("checked")

    monkeypatch.setattr(RemoveNoOps, "needs", (invariant,))
    pipeline(program, X)
    assert calls == []
    with checked():
        pipeline(program, X)
    assert calls == ["checked"]


def test_the_signature_is_that_of_the_pass_in_torch():
    functional = make_fx(torch.func.functionalize(lambda x: (x + 1).mul_(2)))(X)
    done = reinplace(functional, X)
    assert done is functional
    assert torch.equal(done(X), (X + 1) * 2)
