"""From a reduced failure to a finding with its reproducer and its issue."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from campaigns import confirmations
from campaigns.campaign import Campaign
from campaigns.confirmations import Confirmations
from campaigns.failure import ReducedFailure
from campaigns.plan import Plan
from campaigns.reproducer import Confirmation
from campaigns.signature import Signature
from campaigns.store import Store, read_findings
from campaigns.user_level import Reproduced, UserLevel
from oracles.verdict import Violation
from programs.program import Program
from trials.attribution import Symptom

PROGRAM = Program((), (), (), ())
REDUCED = ReducedFailure(
    Signature(Symptom("aot", "values", "wrong value"), "write through expand"),
    Violation("values", "wrong value", "output 0", {"eager": "0", "target": "1"}),
    PROGRAM,
    PROGRAM,
    seed=0,
    tried=0,
    accepted=0,
    exact=True,
)


@pytest.fixture
def confirming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Confirmations:
    """Confirmations whose scripts show the bug, and show it under `aot_eager` as well."""
    monkeypatch.setattr(
        confirmations, "_run", lambda server, script: Confirmation(True, "BUG: it", "exits 1")
    )
    level = UserLevel(
        {"aot_eager": "shows", "inductor": "does not show"},
        Reproduced("torch.compile(program)\n", "BUG: by torch.compile"),
    )
    monkeypatch.setattr(confirmations, "at_user_level", lambda *asked: level)
    folder = tmp_path / "run"
    return Confirmations(Campaign(Plan(("aot",)), folder), Store.create(folder))


def finish(confirming: Confirmations) -> None:
    ends = time.monotonic() + 30
    while confirming.pending:
        assert time.monotonic() < ends
        confirming.take_finished()
    confirming.stop()


def test_a_finding_says_what_torch_compile_does(confirming: Confirmations) -> None:
    confirming.add(REDUCED)
    confirming.add(REDUCED)
    finish(confirming)
    [finding] = confirming.campaign.findings.values()
    assert finding.user_level == {"aot_eager": "shows", "inductor": "does not show"}
    assert finding.count == 2
    assert confirming.campaign.confirming == 0
    [stored] = read_findings(confirming.store.folder)
    assert stored.user_level == finding.user_level
    folder = confirming.store.finding_folder(finding.identifier)
    assert (folder / "reproducer.py").read_text() == "torch.compile(program)\n"
    title, *rest = (folder / "issue.md").read_text().splitlines()
    assert title.startswith("torch.compile(backend='aot_eager') returns wrong values")
    assert "BUG: by torch.compile" in rest


def test_an_unconfirmed_failure_is_not_compiled(
    confirming: Confirmations, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Confirmation(False, "gone", "exits 0")
    monkeypatch.setattr(confirmations, "_run", lambda server, script: gone)
    monkeypatch.setattr(confirmations, "at_user_level", None)
    confirming.add(REDUCED)
    finish(confirming)
    assert not confirming.campaign.findings
    [reason] = confirming.campaign.unconfirmed.values()
    assert "exits 0 without showing it" in reason
