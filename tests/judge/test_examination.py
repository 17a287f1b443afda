"""`examine`: the only way from a case to verdicts."""

from collections.abc import Callable

import pytest
import torch

from aliasproof.eager.definedness import Undefined
from aliasproof.ir.errors import InternalError
from aliasproof.ir.program import Program
from aliasproof.judge import attribution
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, run_eager
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import oracle_names
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


def test_a_right_result_from_a_wrong_graph_is_suspicious() -> None:
    def build(function, inputs) -> Build:
        right = TARGETS["reference"].build(function, inputs)
        graph = right.stages[-1].graph
        node = next(each for each in graph.graph.nodes if each.op == "call_function")
        node.meta["val"] = node.meta["val"].new_empty(7)
        return Build(graph, [*right.stages[:-1], Stage("reinplaced", graph, functional=False)])

    case = Case.of_function(lambda x: x + 1, [torch.arange(4.0)])
    found = examine(case, Target("wrong", "", Contract(), build, ""))
    assert found.suspicious
    assert not found.failed
    assert found.symptom is not None
    assert (found.symptom.target, found.symptom.oracle) == ("wrong", "invariants")


def test_an_internal_error_is_reported_and_its_oracles_are_unknown(adding, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise InternalError("planted")

    monkeypatch.setattr(attribution, "run_stage", fail)
    found = examine(adding, TARGETS["reference"])
    assert isinstance(found.mistake, InternalError)
    assert found.reports["clobbers"].verdict is Verdict.UNKNOWN
    assert found.reports["values"].verdict is Verdict.HOLDS
