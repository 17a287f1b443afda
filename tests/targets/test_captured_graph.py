"""Value hashes of targets behind Dynamo: if possible, the captured graph replaces the function."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, fx

from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.verdict import Report, Verdict
from aliasproof.targets import dynamo
from aliasproof.targets.registry import target
from aliasproof.targets.target import Build, Function, Target
from tests.targets.conftest import vector

BEHIND_DYNAMO = ("dynamo", "aot-eager", "inductor-fx", "dynamo:symbolic")


def hidden(x: Tensor) -> Tensor:
    return (x + 1) * 0


def equivalence(function: Function, inputs: Sequence[Tensor], tested: Target) -> Report:
    examined = examine(Case.of_function(function, inputs), tested, attribute=False)
    assert examined.mistake is None
    assert not examined.failed
    return examined.reports["equivalence"]


@pytest.mark.parametrize("name", BEHIND_DYNAMO)
def test_a_captured_graph_stands_for_the_function(name: str) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x[1:].mul_(3)
        return {"sum": x + y, "view": x[:2], "input": y, "size": x.shape[0]}

    assert equivalence(program, [vector(), vector()], target(name)).verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("changes", "expected"), [(True, Verdict.VIOLATED), (False, Verdict.HOLDS)]
)
def test_a_wrong_graph_is_seen_behind_a_product_with_zero(changes: bool, expected: Verdict) -> None:
    def backend(graph: fx.GraphModule, _: object) -> Callable[..., object]:
        for node in graph.graph.nodes:
            if changes and 1 in node.args:
                node.args = (node.args[0], 2)
        graph.recompile()
        return graph

    def build(function: Function, inputs: object) -> Build:
        found = dynamo.compiled(function, backend)
        return Build(found, [], replay=found.replay)

    planted = replace(target("dynamo"), build=build)
    assert equivalence(hidden, [vector()], planted).verdict is expected


def out_of_order(x: Tensor) -> Tensor:
    torch.neg(x.t(), out=x.t())  # Dynamo takes no `out=` that is not contiguous
    return x + 1


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        pytest.param(
            lambda x: (x * 2) if (x + 1).sum().item() > 0 else x, [vector()], id="two graphs"
        ),
        pytest.param(out_of_order, [vector().view(2, 2)], id="one graph after a call in eager"),
        pytest.param(lambda x: x, [vector()], id="nothing to compile"),
    ],
)
def test_what_is_no_single_graph_is_not_judged(function: Function, inputs: list[Tensor]) -> None:
    report = equivalence(function, inputs, target("dynamo"))
    reason = "Dynamo runs a part of the function in Python, outside of a graph"
    assert (report.verdict, report.reason) == (Verdict.NOT_APPLICABLE, reason)
