"""The oracles on graphs: a graph is wrong although the results of this run are right."""

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import fx

import aliasproof.judge.attribution
from aliasproof.judge.attribution import examine_graphs
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import ON_GRAPHS
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build, Target

aten = torch.ops.aten
X = torch.arange(4.0)


def hidden(x):
    return x.add_(1) * 0


def becomes(change: Callable[[fx.GraphModule], None]) -> Target:
    """The reference target with a change in its last graph."""

    def build(function, inputs):
        right = TARGETS["reference"].build(function, inputs)
        wrong = copy.deepcopy(right.stages[-1].graph)
        change(wrong)
        wrong.recompile()
        return Build(wrong, [*right.stages[:-1], Stage("reinplaced", wrong, functional=False)])

    return Target("wrong", "", Contract(), build, "")


def reports(target: Target) -> dict[str, Verdict]:
    case = Case.of_function(hidden, [X])
    trial = run_trial(case, target)
    assert trial.judgement.violations == []
    judgement = examine_graphs(case, target, trial)
    return {name: report.verdict for name, report in judgement.reports.items()}


def test_a_right_target_holds() -> None:
    # The target's own contract waives equivalence for functions that may be decomposed.
    strict = replace(TARGETS["reference"], contract=Contract())
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


def test_the_graphs_of_a_run_that_raised_are_not_judged() -> None:
    def fail(function, inputs):
        raise RuntimeError("planted")

    case = Case.of_function(hidden, [X])
    target = Target("failing", "", Contract(), fail, "")
    assert judged(case, target) == {Verdict.NOT_APPLICABLE}


def test_a_run_with_large_storages_is_not_judged(monkeypatch) -> None:
    monkeypatch.setattr(aliasproof.judge.attribution, "MOST_BYTES", 40)
    target, case = TARGETS["reference"], Case.of_function(lambda x: x.view(2, 2) + 1, [X])
    assert judged(case, target) == {Verdict.HOLDS, Verdict.NOT_APPLICABLE}
    large = Case.of_function(lambda x: (x + 1) * 2, [X])
    assert judged(large, target) == {Verdict.UNKNOWN}
    reports = examine_graphs(large, target, run_trial(large, target)).reports
    assert "too large: the run has 48 bytes of storages" in reports["equivalence"].reason


def judged(case: Case, target: Target) -> set[Verdict]:
    found = examine_graphs(case, target, run_trial(case, target)).reports
    return {report.verdict for report in found.values()}
