"""Runs are merged by signature: nothing counts twice, and no data on a finding is lost."""

import contextlib
import json
import re
import sqlite3
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.publish.confirmation import Confirmation
from aliasproof.campaigns.run.merging import merge
from aliasproof.campaigns.run.shard import ShardResult, Statistics
from aliasproof.campaigns.run.tasks import outcome_to_json
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.run_contents import read_triage, set_state
from aliasproof.campaigns.store.run_folder import read_findings
from aliasproof.campaigns.store.run_lock import RunLock
from aliasproof.campaigns.store.store import Store
from aliasproof.ir.errors import UserError
from tests.campaigns.test_confirmations import REDUCED
from tests.campaigns.test_store import FAILURE
from tests.reports.test_campaign_outcome import outcome

SHOWN = asdict(Confirmation(True, "BUG: it", "exits 1"))


@pytest.fixture
def finding() -> Finding:
    return replace(REDUCED, identifier="aot-values-1")


def run(folder: Path, finding: Finding, share: int, *, confirmed: bool) -> Path:
    """One of two runs that found the same; only one run confirmed it."""
    folder.mkdir()
    store = Store.open(folder)
    store.keep_plan(Plan(("aot",), programs=50, share=(share, 2)))
    result = outcome_to_json(ShardResult(Shard(share, "aot"), Statistics(programs=25, violating=1)))
    store.keep_result(f"task {share}", ("aot", share), result, [FAILURE])
    [kept] = store.failures(f"task {share}")
    store.keep_finding(finding, "pass\n", "reduced")
    store.keep_occurrence(finding.identifier, kept.task, kept.number)
    if confirmed:
        store.keep_confirmation(finding.identifier, "reproduced", SHOWN)
    store.close()
    return folder


@pytest.fixture
def runs(tmp_path: Path, finding: Finding) -> list[Path]:
    return [run(tmp_path / str(n), finding, n, confirmed=n == 2) for n in (1, 2)]


def test_equal_signatures_are_one_finding_with_all_its_failures(tmp_path, runs, finding):
    for joined in [runs, runs]:  # merging again changes nothing
        campaign = merge(tmp_path / "joined", joined)
        assert outcome(campaign).count("50 programs") == 1
        assert campaign.findings == {"aot-values-1": replace(finding, count=2)}
        assert campaign.statistics["aot"].programs == 50
        assert read_findings(tmp_path / "joined") == [replace(finding, count=2)]
    data = json.loads((tmp_path / "joined" / "run.json").read_text())
    assert [entry["count"] for entry in data["findings"]] == [2]
    store = Store.open(tmp_path / "joined")
    assert [each.state for each in read_triage(store)] == ["reproduced"]
    with pytest.raises(UserError, match="was merged from other runs"):
        store.plan()


def test_what_a_person_said_of_a_finding_is_kept(tmp_path: Path, runs: list[Path]) -> None:
    store = Store.open(runs[0])
    set_state(store, "aot-values-1", "documented", "https://x", "as they say")
    for name, state in (("aot-values-2", "fixed"), ("aot-values-1", "fixd")):
        with pytest.raises(UserError, match="did you mean"):
            set_state(store, name, state, "", "")
    store.close()
    merge(tmp_path / "joined", runs)
    [said] = read_triage(Store.open(tmp_path / "joined"))
    assert said == ("aot-values-1", "documented", "https://x", "as they say", 2)


def test_a_fixed_finding_that_a_run_finds_again_has_regressed(runs: list[Path]) -> None:
    store = Store.open(runs[0])
    set_state(store, "aot-values-1", "fixed", "https://x", "")
    [task] = {task for (task,) in store.all("SELECT task FROM occurrences")}
    [kept] = store.failures(task)
    store.keep_occurrence("aot-values-1", kept.task, kept.number)
    assert read_triage(store)[0].state == "fixed", "the same failure, as a run that goes on sees it"
    store.keep_occurrence("aot-values-1", "a new one", kept.number)
    assert read_triage(store)[0].state == "regressed"


def test_a_run_in_use_is_refused_and_a_run_is_not_merged_into(tmp_path, runs):
    with pytest.raises(UserError, match="is a run itself"):
        merge(runs[0], runs[1:])
    lock = RunLock.take(runs[0])
    with pytest.raises(UserError, match="is in use by pid"):
        merge(tmp_path / "joined", runs)
    lock.release()
    with pytest.raises(UserError, match="has no store"):
        merge(tmp_path / "joined", [tmp_path])


DAMAGES = {
    "a result": "UPDATE shards SET result = '{'",
    "a number of a result": 'UPDATE shards SET result = \'{"statistics": {"programs": "x"}}\'',
    "a finding": "UPDATE findings SET finding = '[]'",
    "a confirmation": "UPDATE findings SET confirmation = '{\"x\": 1}'",
    "a known bug": "UPDATE occurrences SET finding = 'known-unheard-of'",
    "deaths": "UPDATE failures SET deaths = 'null'",
    "a text": "UPDATE failures SET kind = CAST(x'ff' AS TEXT)",
    "a note of a person": "INSERT INTO triage VALUES (CAST(x'ff' AS TEXT), '', '', '')",
    "a plan": "UPDATE runs SET plan = '{}'",
    "a table": "DROP TABLE occurrences",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_is_named_and_nothing_of_it_is_joined(tmp_path, runs, damage):
    merge(tmp_path / "joined", runs[:1])
    with contextlib.closing(sqlite3.connect(runs[1] / "store.sqlite")) as connection:
        connection.execute(damage)
        connection.commit()
    new = tmp_path / "new"
    for folder in (tmp_path / "joined", new):
        with pytest.raises(UserError, match=re.escape(str(runs[1] / "store.sqlite"))) as told:
            merge(folder, runs)
        assert "--run" not in str(told.value)
        assert str(folder) not in str(told.value)
    assert not new.exists(), "nothing is written before all is read"
    campaign = merge(tmp_path / "joined", runs[:1])
    assert campaign.statistics["aot"].programs == 25


def test_a_damaged_page_is_of_the_run_that_has_it(tmp_path: Path, runs: list[Path]) -> None:
    file = runs[1] / "store.sqlite"
    whole = bytearray(file.read_bytes())
    whole[4096:] = bytes(len(whole) - 4096)
    file.write_bytes(whole)
    with pytest.raises(UserError, match=re.escape(str(runs[1]))):
        merge(tmp_path / "joined", runs)
    assert not (tmp_path / "joined").exists()


def test_a_run_that_is_named_twice_is_told(tmp_path: Path, runs: list[Path]) -> None:
    one, other = runs
    with pytest.raises(UserError, match="is both the folder of the joined run and a run to join"):
        merge(one, [one / ".." / one.name])
    with pytest.raises(UserError, match="is named twice; name each run once"):
        merge(tmp_path / "joined", [one, other, one])
    assert not (tmp_path / "joined").exists()


def test_another_torch_is_told_without_an_option_that_merge_has_not(tmp_path, runs, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "1.0")
    with pytest.raises(UserError, match="was made with torch") as told:
        merge(tmp_path / "joined", runs)
    assert "--run" not in str(told.value)


def test_a_name_cannot_leave_the_folder(tmp_path: Path, runs: list[Path]) -> None:
    store = Store.open(runs[1])
    store.write("UPDATE findings SET finding = replace(finding, 'aot-values-1', '../../away')")
    store.write("UPDATE findings SET identifier = '../../away'")
    store.close()
    told = rf"'\.\./\.\./away' is no name of a finding; the store of {runs[1]} is damaged"
    with pytest.raises(UserError, match=told):
        merge(tmp_path / "joined", runs[1:])
    assert not (tmp_path / "away").exists()
    assert not (tmp_path / "joined").exists()


def test_a_store_without_its_plan_is_no_run(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with pytest.raises(UserError, match="has not begun"):
        merge(tmp_path / "joined", [tmp_path])


def test_the_outcome_of_a_store_counts_what_waits(tmp_path: Path, finding: Finding) -> None:
    folder = run(tmp_path / "run", finding, 1, confirmed=False)
    campaign = merge(tmp_path / "joined", [folder])
    assert (campaign.confirming, campaign.findings) == (1, {})
