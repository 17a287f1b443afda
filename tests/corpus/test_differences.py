"""Every drawn program that differs from eager in any result is flagged by `check`."""

import pytest

from aliasproof.checks.check import check
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.program import Program
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import judge
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import target as target_named


def drawn_programs() -> list[Program]:
    seeds = (12_000, 12_001)
    return [program for seed in seeds for program in sample(swarm(seed), seed, 25)][:40]


def differs(program, target: str) -> bool:
    """Whether any result differs, by a contract without exceptions."""
    trial = examine(Case.of(program), target_named(target), attribute=False).trial
    if trial is None:
        return False
    return bool(judge(Contract(), trial.eager, trial.target, trial.trace).violations)


@pytest.mark.filterwarnings("ignore")  # of torch, about odd programs
@pytest.mark.parametrize("target", ["functionalize", "aot"])
def test_every_program_that_differs_is_flagged(target: str) -> None:
    differing = [program for program in drawn_programs() if differs(program, target)]
    assert differing
    for program in differing:
        verdict = check(program, targets=[target]).results[target].verdict
        assert verdict in (Verdict.VIOLATED, Verdict.DOCUMENTED)
