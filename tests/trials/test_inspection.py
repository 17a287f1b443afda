"""Looking inside a target: what a run does not show to be wrong, terms and stages do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import fx

from oracles.contract import Contract
from oracles.judge import ON_GRAPHS
from oracles.stage import Stage
from oracles.verdict import Verdict
from targets.registry import TARGETS
from targets.target import Build, Target
from trials.inspection import look_inside
from trials.trial import Case, run_trial

aten = torch.ops.aten
X = torch.arange(4.0)


def hidden(x):
    return x.add_(1) * 0


def becomes(change: Callable[[fx.GraphModule], None]) -> Target:
    """The reference target with a mistake in its last graph."""

    def build(function, inputs):
        right = TARGETS["reference"].build(function, inputs)
        wrong = copy.deepcopy(right.stages[-1].graph)
        change(wrong)
        wrong.recompile()
        return Build(wrong, [*right.stages[:-1], Stage("reinplaced", wrong, functional=False)])

    return Target("wrong", "", Contract(), build, "")


def reports(target: Target) -> dict[str, Verdict]:
    subject = Case.of_function(hidden, [X])
    trial = run_trial(subject, target)
    assert trial.judgement.violations == []
    return {
        name: report.verdict for name, report in look_inside(subject, target, trial).reports.items()
    }


def test_a_right_target_holds() -> None:
    strict = replace(
        TARGETS["reference"], contract=Contract()
    )  # its own waives terms of functions that may be composed
    assert reports(strict) == dict.fromkeys(ON_GRAPHS, Verdict.HOLDS)


def test_a_stale_value_behind_a_product_with_zero() -> None:
    def read_before_the_write(graph_module: fx.GraphModule) -> None:
        nodes = {node.name: node for node in graph_module.graph.nodes}
        with graph_module.graph.inserting_before(nodes["add"]):
            stale = graph_module.graph.call_function(
                aten.clone.default, (next(iter(nodes.values())),)
            )
        nodes["mul"].update_arg(0, stale)

    assert reports(becomes(read_before_the_write))["equivalence"] is Verdict.VIOLATED


def test_metadata_that_is_no_longer_true() -> None:
    def lie(graph_module: fx.GraphModule) -> None:
        node = next(node for node in graph_module.graph.nodes if node.name == "mul")
        node.meta["val"] = node.meta["val"].new_empty(7)

    assert reports(becomes(lie))["invariants"] is Verdict.VIOLATED


def test_a_run_that_raised_is_not_looked_into() -> None:
    def fail(function, inputs):
        raise RuntimeError("planted")

    subject = Case.of_function(hidden, [X])
    target = Target("failing", "", Contract(), fail, "")
    judgement = look_inside(subject, target, run_trial(subject, target))
    assert {each.verdict for each in judgement.reports.values()} == {Verdict.NOT_APPLICABLE}
