"""One trial: fresh inputs for every run, and a verdict however a run ends."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aliasproof.eager.definedness import Undefined
from aliasproof.ir.program import Program
from aliasproof.judge.trial import Case, Spent, processor_seconds, run_eager, run_trial
from aliasproof.oracles.contract import Contract, Precondition
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.target import Build, Function, Target


def target(build, contract: Contract | None = None) -> Target:
    return Target("planted", "for this test", contract or Contract(), build, recipe="")


def careless(function: Function, inputs: Sequence[Tensor]) -> Build:
    """A right target whose build mutates its sample inputs."""
    function(*inputs)
    return Build(function, [])


@pytest.fixture
def adding(program: Callable[..., Program]) -> Program:
    return program("aten.add_.Scalar(x0, 1)\nreturn (x0,)", (4,))


def test_each_run_gets_fresh_inputs(adding: Program) -> None:
    trial = run_trial(Case.of(adding), target(careless))
    assert trial.judgement.violations == []
    assert trial.target is not None
    assert trial.eager.inputs[0].tolist() == trial.target.inputs[0].tolist() == [2, 3, 4, 5]


def test_a_function_is_tested_on_clones_of_its_inputs() -> None:
    base = torch.arange(4.0)
    case = Case.of_function(lambda x, y: x.add_(1) + y, [base[:3], base[1:]])
    trial = run_trial(case, target(careless))
    assert trial.judgement.violations == []
    assert trial.eager.outputs[0].tolist() == [1 + 2, 2 + 3, 3 + 3]  # type: ignore[attr-defined]
    assert base.tolist() == [0, 1, 2, 3]


def test_inputs_that_share_in_eager_share_in_the_target(program) -> None:
    apart = program("aten.zero_.default(x0)\nreturn (x1,)", (4,), (4,))
    shared = replace(apart, inputs=(apart.inputs[0], replace(apart.inputs[1], storage=0)))
    trial = run_trial(Case.of(shared), target(careless))
    assert trial.judgement.violations == []
    assert trial.target is not None
    for observation in (trial.eager, trial.target):
        assert observation.outputs[0].tolist() == [0, 0, 0, 0]  # type: ignore[attr-defined]


def test_an_undefined_function_is_rejected() -> None:
    case = Case.of_function(lambda x: x[1:].copy_(x[:-1]), [torch.arange(4.0)])
    with pytest.raises(Undefined):
        run_trial(case, target(careless))


@pytest.mark.parametrize("stage", ["build", "run"])
def test_an_error_of_the_target_is_judged_whether_it_builds_or_runs(adding, stage):
    def fail(*inputs: Tensor) -> object:
        raise RuntimeError("planted")

    def build(function: Function, inputs: Sequence[Tensor]) -> Build:
        return fail() if stage == "build" else Build(fail, [])  # type: ignore[return-value]

    trial = run_trial(Case.of(adding), target(build))
    assert [violation.kind for violation in trial.judgement.violations] == [
        "raises RuntimeError: planted"
    ]
    assert (trial.build is None) == (stage == "build")


def test_a_target_runs_and_is_compared_whatever_its_contract_says(adding: Program) -> None:
    contract = Contract(
        preconditions=(Precondition("never", "for this test", lambda trace: False),)
    )
    right = run_trial(Case.of(adding), target(careless, contract))
    assert {report.verdict for report in right.judgement.reports.values()} == {Verdict.HOLDS}

    def forgetful(function: Function, inputs: Sequence[Tensor]) -> Build:
        return Build(lambda *given: given[0], [])

    wrong = run_trial(Case.of(adding), target(forgetful, contract))
    assert wrong.judgement.violations == []
    assert [found.difference.oracle for found in wrong.judgement.documented] == ["values", "inputs"]


def test_an_eager_run_can_be_used_again(adding: Program) -> None:
    case = Case.of(adding)
    seen = run_eager(case, Spent())
    trial = run_trial(case, target(careless), eager=seen)
    assert (trial.eager, trial.trace) == seen
    assert trial.judgement.violations == []


def test_seconds_are_added_to_the_part_that_spent_them(adding: Program) -> None:
    spent = Spent()
    run_trial(Case.of(adding), target(careless), spent)
    assert min(spent.eager, spent.target, spent.oracles) > 0
    assert spent.generation == 0
    total = Spent(1, 2, 3, 4)
    total.add(Spent(1, 1, 1, 1))
    assert total == Spent(2, 3, 4, 5)


def test_the_time_of_a_compiler_that_a_worker_calls_counts() -> None:
    before = processor_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert processor_seconds() - before > 0.03
