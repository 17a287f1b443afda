"""Candidates are checked in groups: the same reduction with fewer compiles."""

import functools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from aliasproof.campaigns.failure.reduction import evaluate_in_groups
from aliasproof.eager import definedness
from aliasproof.eager.definedness_rules import RULES
from aliasproof.ir.eager_call import EagerCall
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom, grade
from aliasproof.oracles.contract import Contract
from aliasproof.reduction.program_steps import PROGRAM
from aliasproof.reduction.reducer import Reducer
from aliasproof.targets.target import Build, Function, Target

SYMPTOM = Symptom("planted", "values", "wrong value")


@pytest.fixture
def failing(program: Callable[..., Program]) -> Program:
    return program(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.add.Tensor(v0, x1)
        v2 = aten.mul.Tensor(v1, v1)
        v3 = aten.abs.default(v2)
        v4 = aten.relu.default(v3)
        v5 = aten.sub.Tensor(v4, v0)
        return (v1, v5, v3)
        """,
        (4,),
        (4,),
    )


def planted(builds: list[int]) -> Target:
    """A target that computes `relu` wrongly, and counts its builds."""

    def build(function: Function, inputs: Sequence[Tensor]) -> Build:
        assert isinstance(function, ProgramFunction)
        builds.append(len(function.program))
        wrong = any(call.op == "aten.relu.default" for call in function.program.instructions)

        def run(*tensors: Tensor) -> object:
            outputs = function(*tensors)
            return [output + wrong for output in outputs]

        return Build(run, [], "this target shows no graphs")

    return Target("planted", "a compiler with a planted bug", Contract(), build, recipe="")


def test_the_result_is_that_of_single_questions(failing: Program) -> None:
    single: list[int] = []
    predicate = functools.partial(grade, target=planted(single), symptom=SYMPTOM)
    expected = Reducer(PROGRAM, failing, predicate).run()
    together: list[int] = []
    target = planted(together)
    predicate = functools.partial(grade, target=target, symptom=SYMPTOM)
    reducer = Reducer(PROGRAM, failing, predicate, evaluate_in_groups(target))
    assert reducer.run() == expected
    assert len(expected) == 1
    assert reducer.accepted > 0


def test_candidates_that_are_right_in_a_group_are_not_asked_about(program):
    right = program("v0 = aten.neg.default(x0)\nreturn (v0,)", (4,))
    wrong = program("v0 = aten.relu.default(x0)\nreturn (v0,)", (4,))
    undefined = program(
        "v0 = aten.expand.default(x0, [3, 4])\naten.add_.Scalar(v0, 1)\nreturn (v0,)", (4,)
    )
    asked: list[Program] = []

    def predicate(candidate: Program) -> int:
        asked.append(candidate)
        return int(candidate == wrong)

    builds: list[int] = []
    candidates = [right, right, right, undefined, right, right, right]
    assert list(evaluate_in_groups(planted(builds))(predicate, candidates)) == [0] * 7
    assert asked == [right]  # the first group has one member
    assert builds == [2, 3]
    asked.clear()
    answers = list(evaluate_in_groups(planted(builds))(predicate, [right, wrong, wrong]))
    assert answers == [0, 1, 1]


def test_a_candidate_on_which_aliasproof_fails_is_asked_about_alone(program, monkeypatch):
    def fails_on_cosine(call: EagerCall) -> str | None:
        if call.op is torch.ops.aten.cos.default:
            raise IndexError("a defect of the watch")
        return None

    monkeypatch.setattr(definedness, "RULES", (*RULES, fails_on_cosine))
    right = program("v0 = aten.neg.default(x0)\nreturn (v0,)", (4,))
    failing = program("v0 = aten.cos.default(x0)\nreturn (v0,)", (4,))
    asked: list[Program] = []

    def predicate(candidate: Program) -> int:
        asked.append(candidate)
        return 0

    candidates = [right, right, right, right, failing, right, right]
    assert list(evaluate_in_groups(planted([]))(predicate, candidates)) == [0] * 7
    assert asked == [right, failing]  # the first group has one member
