"""Tests that need a GPU: `make test ARGS='-m cuda'`. Elsewhere, they are skipped."""

from pathlib import Path

import pytest
import torch

from aliasproof import check
from aliasproof.campaigns.publish.confirmation import run_text
from aliasproof.campaigns.publish.reproducer import render
from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.store.plan import Plan
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.devices import on_device
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import target
from tests.subprocesses import aliasproof

pytestmark = pytest.mark.cuda

DEVICE = "cuda"


@pytest.mark.parametrize("name", ["identity", "reference", "reference-copy", "reference-planned"])
def test_a_right_target_is_right_with_all_oracles(name: str) -> None:
    for program in sample(swarm(7), 7, 60):
        found = examine(Case.of(on_device(program, DEVICE)), target(name), every_oracle=True)
        assert found.symptom is None, (found.symptom, program)
        assert found.mistake is None


def test_the_kernels_of_both_devices_agree() -> None:
    for program in sample(swarm(8), 8, 60):
        found = examine(Case.of(program), target("eager-cuda"))
        assert found.symptom is None, (found.symptom, program)


def test_a_known_bug_shows_on_the_device_and_so_does_its_script() -> None:
    program = on_device(known_bugs()["expand-inverse"].program, DEVICE)
    violation = run_trial(Case.of(program), target("aot")).judgement.violations[0]
    text = render(program, target("aot"), violation, exact=True)
    assert 'device="cuda"' in text
    confirmation = run_text(text)
    assert confirmation.shown, confirmation.output


def test_the_inputs_of_a_user_move_with_what_they_share() -> None:
    base = torch.arange(8.0)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert x.device.type == y.device.type == "cuda"
        assert x.untyped_storage()._cdata == y.untyped_storage()._cdata
        y.add_(1)
        return x * 2

    found = check(program, (base[:6], base.view(4, 2)[1:, 0]), ["identity", "aot"], device=DEVICE)
    for result in found.results.values():
        assert result.reports["values"].verdict is Verdict.HOLDS
    assert base.tolist() == list(range(8))


LOST = """
import torch

def program(x):
    return x[torch.tensor([99], device=x.device)]

def inputs():
    return torch.ones(4, device="cuda")
"""


def test_an_assert_of_a_kernel_is_blamed_on_the_run_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LOST)
    done = aliasproof("check", "mine.py", "--device", DEVICE, cwd=tmp_path)
    assert done.returncode == 2
    assert "program() in eager loses its device" in done.stderr
    assert "device-side assert" in done.stderr


def test_a_campaign_runs_on_the_device(tmp_path: Path) -> None:
    plan = Plan(("aot",), programs=50, workers=2, device=DEVICE)
    campaign = fuzz(plan, tmp_path / "run")
    assert campaign.mistakes == []
    assert campaign.deaths == 0
    assert campaign.total.programs == 50
    found = campaign.findings.values()
    assert all(it.device == DEVICE for it in found)
