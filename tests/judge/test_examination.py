"""`examine`: the only way from a case to verdicts, and the oracles on graphs."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import fx

import aliasproof.judge.attribution
from aliasproof.eager.definedness import Undefined
from aliasproof.ir.errors import InternalError
from aliasproof.ir.program import Program
from aliasproof.judge import attribution
from aliasproof.judge.attribution import Symptom, examine_graphs
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, run_eager, run_trial
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import ON_GRAPHS, oracle_names
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build, Target


@pytest.fixture
def adding(program: Callable[..., Program]) -> Case:
    return Case.of(
        program("v0 = aten.add.Scalar(x0, 1)\naten.zero_.default(v0)\nreturn (v0,)", (4,))
    )


def forgetful(program: Program) -> Program:
    """The program without its last instruction."""
    return Program(program.storages, program.inputs, program.instructions[:-1], program.outputs)


def test_every_oracle_judges_a_right_target(adding: Case) -> None:
    found = examine(adding, TARGETS["identity"])
    # A function on tensors leaves outputs without paths.
    assert [*found.reports] == [*oracle_names(paths=False, memory=False)]
    assert found.symptom is None
    assert (found.rejected, found.mistake, found.violations) == (None, None, [])
    assert [found.failed, found.suspicious, found.documented] == [False, False, []]
    assert min(found.spent.eager, found.spent.target, found.spent.graphs) > 0


def test_a_wrong_result_is_the_symptom_and_graphs_are_not_judged(adding: Case, compiler) -> None:
    found = examine(adding, compiler(forgetful))
    assert found.failed
    assert found.symptom == Symptom("planted", "values", "wrong value")
    assert "equivalence" not in found.reports
    assert found.spent.graphs == 0


def test_every_oracle_answers_on_request(adding: Case, compiler) -> None:
    found = examine(adding, compiler(forgetful), every_oracle=True)
    assert found.reports["values"].verdict is Verdict.VIOLATED
    assert found.reports["equivalence"].verdict is Verdict.VIOLATED


def test_the_earlier_target_is_at_fault(adding: Case, compiler) -> None:
    tested = compiler(forgetful, after=compiler(forgetful, "first"))
    found = examine(adding, tested)
    assert found.symptom is not None
    assert found.symptom.target == "first"
    assert examine(adding, tested, attribute=False).symptom is None


def test_a_case_undefined_in_eager_is_rejected(program) -> None:
    overlapping = "v0 = aten.expand.default(x0, [3, 4])\naten.add_.Scalar(v0, 1)\nreturn (x0,)"
    found = examine(Case.of(program(overlapping, (4,))), TARGETS["identity"])
    assert isinstance(found.rejected, Undefined)
    assert {report.verdict for report in found.reports.values()} == {Verdict.NOT_APPLICABLE}


def raising(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no")


def test_a_case_that_raises_in_eager_is_judged_only_if_the_caller_gives_the_run() -> None:
    case = Case.of_function(raising, [torch.ones(2)])
    assert str(examine(case, TARGETS["identity"]).rejected) == "eager raises ValueError: no"
    answered = examine(case, TARGETS["identity"], eager=run_eager(case))
    assert answered.rejected is None
    assert answered.reports["errors"].verdict is Verdict.HOLDS


def test_an_internal_error_is_reported_and_its_oracles_are_unknown(adding, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise InternalError("planted")

    monkeypatch.setattr(attribution, "run_stage", fail)
    found = examine(adding, TARGETS["reference"])
    assert isinstance(found.mistake, InternalError)
    assert found.reports["clobbers"].verdict is Verdict.UNKNOWN
    assert found.reports["values"].verdict is Verdict.HOLDS


# --- a graph is wrong although the results of this run are right ----------------------------------


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


def test_a_right_result_from_a_wrong_graph_is_suspicious() -> None:
    def lie(graph_module: fx.GraphModule) -> None:
        node = next(node for node in graph_module.graph.nodes if node.name == "mul")
        node.meta["val"] = node.meta["val"].new_empty(7)

    found = examine(Case.of_function(hidden, [X]), becomes(lie))
    assert found.suspicious
    assert not found.failed
    assert found.symptom is not None
    assert (found.symptom.target, found.symptom.oracle) == ("wrong", "invariants")


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
