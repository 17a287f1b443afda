"""From a reduced failure to a finding with its reproducer and its issue."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.failure.signature import Signature
from aliasproof.campaigns.publish import publisher
from aliasproof.campaigns.publish.confirmation import Confirmation, Reproduced
from aliasproof.campaigns.publish.reproducer import Reproducer
from aliasproof.campaigns.run import confirmations
from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.confirmations import Confirmations
from aliasproof.campaigns.run.scheduler import FoundFailure
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_folder import RunFolder, read_findings
from aliasproof.campaigns.store.run_lock import FINDINGS
from aliasproof.campaigns.store.store import Store
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.oracles.verdict import Violation

PROGRAM = Program((), (), (), ())
REDUCED = Finding.of(
    PROGRAM,
    "aot",
    Violation("values", "wrong value", "output 0", {"eager": "0", "target": "1"}),
    Signature(Symptom("aot", "values", "wrong value"), "write through expand").identifier,
    cause="write through expand",
)


@pytest.fixture
def confirming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Confirmations]:
    """Confirmations whose scripts show the bug, also under `aot_eager`."""
    monkeypatch.setattr(
        publisher, "confirmed", lambda *asked: Confirmation(True, "BUG: it", "exits 1")
    )
    level = {"aot_eager": "shows", "inductor": "does not show"}
    shown = Reproduced("torch.compile(program)\n", "BUG: by torch.compile")
    monkeypatch.setattr(
        publisher,
        "at_user_level",
        lambda finding, *asked: (replace(finding, user_level=level), shown),
    )
    made = confirming_in(tmp_path / "run")
    yield made
    made.stop()


def confirming_in(folder: Path) -> Confirmations:
    files = RunFolder.create(folder)
    files.prepare()
    return Confirmations(Campaign(Plan(("aot",)), folder), Store.open(folder), files)


def test_only_the_first_finding_of_each_kind_is_due(confirming: Confirmations) -> None:
    second = replace(REDUCED, identifier="aot-values-2", cause="another")
    add(confirming)
    while confirming.is_due:
        confirming.take_finished()
    assert confirming.campaign.findings
    add(confirming, number=1, reduced=second)
    assert confirming.pending
    assert not confirming.is_due


def test_a_script_that_cannot_be_written_ends_no_campaign(confirming, monkeypatch) -> None:
    def fails(finding: Finding[Program], *, literal: bool = False) -> str:
        if not literal:
            raise IndexError("out of range")
        return publisher.script_of(finding, literal=True)

    monkeypatch.setattr(confirmations, "script_of", fails)
    add(confirming)
    finish(confirming)
    assert [*confirming.campaign.findings] == [REDUCED.identifier]
    assert confirming.campaign.mistakes == [
        f"script of {REDUCED.identifier}: IndexError: out of range"
    ]


def add(
    confirming: Confirmations,
    task: str = "a task",
    number: int = 0,
    reduced: Finding[Program] = REDUCED,
) -> None:
    """Add the reduced failure of the task that was scheduled as the `number`-th."""
    store = confirming.store
    failure = Failure(reduced.symptom, reduced.original, reduced.seed)
    confirming.add(FoundFailure(reduced, store.keep_failure(task, failure), number))


def finish(confirming: Confirmations) -> None:
    wait(confirming)
    confirming.stop()


def wait(confirming: Confirmations) -> None:
    ends = time.monotonic() + 120
    while confirming.pending:
        assert time.monotonic() < ends
        confirming.take_finished()


def test_a_finding_says_what_torch_compile_does(confirming: Confirmations) -> None:
    add(confirming)
    add(confirming, "another task")
    finish(confirming)
    [finding] = confirming.campaign.findings.values()
    assert finding.user_level == {"aot_eager": "shows", "inductor": "does not show"}
    assert finding.count == 2
    assert confirming.campaign.confirming == 0
    [stored] = read_findings(confirming.folder.folder)
    assert stored.user_level == finding.user_level
    folder = confirming.folder.path(FINDINGS, finding.identifier)
    assert (folder / "reproducer.py").read_text() == "torch.compile(program)\n"
    title, *rest = (folder / "issue.md").read_text().splitlines()
    assert title.startswith("torch.compile(backend='aot_eager') returns wrong values")
    assert "BUG: by torch.compile" in rest


def test_a_known_bug_is_not_run_under_torch_compile(confirming, monkeypatch):
    monkeypatch.setattr(publisher, "at_user_level", None)
    add(confirming, reduced=replace(REDUCED, known="expand-inverse"))
    finish(confirming)
    [finding] = confirming.campaign.findings.values()
    assert finding.user_level == {}
    kept = confirming.store.finding(finding.identifier)
    assert kept is not None
    issue = confirming.folder.path(FINDINGS, finding.identifier) / "issue.md"
    assert issue.read_text() == kept.issue


def test_an_unconfirmed_failure_is_not_compiled(confirming, monkeypatch):
    gone = Confirmation(False, "gone", "exits 0")
    monkeypatch.setattr(publisher, "confirmed", lambda *asked: gone)
    monkeypatch.setattr(publisher, "at_user_level", None)
    add(confirming)
    finish(confirming)
    assert not confirming.campaign.findings
    [reason] = confirming.campaign.unconfirmed.values()
    assert "exits 0 without showing it" in reason


def test_a_failure_is_confirmed_by_a_literal_script_if_no_other_shows_it(confirming, monkeypatch):
    def shown(reproducer: Reproducer, run: object) -> Confirmation:
        scripts.append(reproducer.script)
        return Confirmation("torch.no_grad" in scripts[-1], "", "exits")

    scripts: list[str] = []
    monkeypatch.setattr(publisher, "confirmed", shown)
    add(confirming)
    finish(confirming)
    ordinary, _ = scripts
    assert "torch.no_grad" not in ordinary
    assert not confirming.campaign.unconfirmed
    [name] = confirming.campaign.findings
    kept = confirming.store.finding(name)
    assert kept is not None
    assert kept.confirmation is not None
    assert kept.confirmation["shown"]


def test_what_the_store_knows_is_not_run_again(confirming, monkeypatch):
    add(confirming)
    finish(confirming)
    folder = confirming.folder.folder
    before = contents(folder)
    confirming.store.close()
    for name in ("confirmed", "at_user_level"):
        monkeypatch.setattr(publisher, name, None)
    again = confirming_in(folder)
    add(again)
    finish(again)
    assert again.campaign.findings == confirming.campaign.findings
    assert again.store.occurrences() == dict.fromkeys(again.campaign.findings, 1)
    assert contents(folder) == before


@pytest.mark.parametrize("confirmed", [False, True])
def test_what_was_asked_for_first_is_the_evidence_whenever_it_comes(
    confirming: Confirmations, *, confirmed: bool
) -> None:
    first, second, third = (replace(REDUCED, seed=seed) for seed in (1, 2, 3))
    add(confirming, "second", 2, second)
    if confirmed:
        wait(confirming)
    add(confirming, "third", 3, third)
    add(confirming, "first", 1, first)
    finish(confirming)
    [finding] = confirming.campaign.findings.values()
    assert (finding.seed, finding.count) == (1, 3)
    [stored] = read_findings(confirming.folder.folder)
    kept = confirming.store.finding(finding.identifier)
    assert kept is not None
    assert (stored.seed, kept.finding.seed) == (1, 1)
    assert stored.user_level == finding.user_level != {}


def test_evidence_is_replaced_after_a_kill_too(confirming: Confirmations) -> None:
    add(confirming, "second", 2, replace(REDUCED, seed=2))
    finish(confirming)
    again = confirming_in(confirming.folder.folder)
    add(again, "first", 1, replace(REDUCED, seed=1))
    add(again, "second", 2, replace(REDUCED, seed=2))
    finish(again)
    [finding] = again.campaign.findings.values()
    [stored] = read_findings(again.folder.folder)
    assert (finding.seed, finding.count, stored.seed) == (1, 2, 1)


def test_a_folder_that_was_removed_is_made_again(confirming: Confirmations) -> None:
    add(confirming)
    finish(confirming)
    folder = confirming.folder.folder
    before = contents(folder)
    shutil.rmtree(folder / "findings")
    again = confirming_in(folder)
    add(again)
    finish(again)
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, str]:
    """The text of each file of each finding."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.glob("findings/*/*"))
    }
