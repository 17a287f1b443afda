"""Stored values and folders are read back equal; a full disk loses none of them."""

import json
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aliasproof.campaigns.failure.codec import encoded
from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.failure.reduction import reduce_failure
from aliasproof.campaigns.run.shard import ShardResult, Statistics, Suspicions, run_shard
from aliasproof.campaigns.run.tasks import outcome_from_json, outcome_to_json, shard_of, task_name
from aliasproof.campaigns.store import store_schema as stored
from aliasproof.campaigns.store.full_disk import DiskFull, explain_full_disk, require_room
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.run_folder import (
    RunFolder,
    read_finding,
    read_findings,
    write_finding,
)
from aliasproof.campaigns.store.run_lock import FINDINGS, SUSPICIONS, UNCONFIRMED, RunLock
from aliasproof.campaigns.store.store import Store
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.generators.scene import Counts
from aliasproof.ir.errors import UserError
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.trial import Spent
from aliasproof.oracles.verdict import Violation

PROGRAM = known_bugs()["expand-inverse"].program
SYMPTOM = Symptom("aot", "values", "wrong value")
SEEN = Violation("values", "wrong value", "output 0", {"elements": 4})
FAILURE = Failure(SYMPTOM, PROGRAM, 7, violation=SEEN)
KNOWN = replace(FAILURE, known="expand-inverse")


def test_failures_come_back_with_program_and_evidence(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.keep_result("task", ("aot", 7), {}, [FAILURE, KNOWN])
    store.close()
    again = Store.open(tmp_path)
    first, second = again.failures("task")
    assert (first.failure, second.failure) == (FAILURE, KNOWN)
    assert first.failure.violation is not None
    assert first.failure.violation.evidence == SEEN.evidence
    assert again.occurrences() == {"known-expand-inverse": 1}
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["known"] for event in events] == [None, "expand-inverse"]


def test_a_shard_comes_back_as_it_was() -> None:
    shard, suspicions = Shard(7, "aot", skip=frozenset({1})), Suspicions()
    suspicions.add(SYMPTOM, PROGRAM, 3)
    drawn = Counts(9, 1, 2, 3, Counter({("aten.add.Tensor", "raises"): 2}), Counter({"swap": 1}))
    statistics = Statistics(25, 1, 2, 3, 4, 5, drawn, Spent(1.0, 2.0))
    failures = [FAILURE, Failure(SYMPTOM, PROGRAM, 7, of_group=True)]
    result = ShardResult(shard, statistics, [*failures], suspicions, 1.5, 0.5)
    data = json.loads(json.dumps(outcome_to_json(result)))
    assert outcome_from_json(data, shard, failures) == result


def test_the_name_of_a_task_has_its_shard() -> None:
    shard = Shard(7, "aot", skip=frozenset({3, 1}), suspects=range(2, 5), patched=("row-swap",))
    assert shard_of(task_name(shard, 2)) == shard
    assert task_name(shard, 1) != task_name(shard, 2)


@pytest.mark.parametrize(
    "values", [{"workers": 0}, {"seconds": float("nan")}, {"share": [3, 2]}, {"device": "disk"}]
)
def test_a_plan_out_of_range_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="of the plan is"):
        Plan.from_json(encoded(Plan(("aot",))) | values)


def test_a_plan_comes_back_and_another_torch_may_not_go_on(tmp_path, monkeypatch):
    store, plan = Store.open(tmp_path), Plan(("aot", "inductor"), 3, seconds=2.5, share=(2, 4))
    assert store.plan() is None
    store.keep_plan(plan)
    assert store.plan() == plan
    monkeypatch.setattr(torch, "__version__", "1.0")
    with pytest.raises(UserError, match=r"was made with torch .*, and this is torch 1\.0"):
        store.plan()


def test_a_shard_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    broken = replace(FAILURE, seed=object())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.keep_result("task", ("aot", 7), {}, [FAILURE, broken])
    assert store.result("task") is None
    assert store.failures("task") == []


def test_a_full_disk_is_one_line_and_takes_nothing_away(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages + 8}")
    kept = 0

    def fill() -> None:
        nonlocal kept
        while kept < 100:
            store.keep_result(f"task {kept}", ("aot", 7), {}, [FAILURE])
            kept += 1

    with pytest.raises(DiskFull, match=f"--run {tmp_path}"), explain_full_disk(tmp_path):
        fill()
    assert 0 < kept < 100
    assert all(store.failures(f"task {number}") for number in range(kept))
    assert store.result(f"task {kept}") is None
    store.close()
    again = Store.open(tmp_path)  # there is space again
    again.keep_result(f"task {kept}", ("aot", 7), {}, [FAILURE])
    assert again.failures(f"task {kept}")


def test_a_compiler_that_cannot_write_is_no_bug_of_a_target(tmp_path: Path) -> None:
    require_room("raises RuntimeError: no space for a dimension", tmp_path)
    with pytest.raises(DiskFull):
        require_room("raises OSError: [Errno 28] No space left on device: '/x'", tmp_path)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", "null"])
def test_a_damaged_row_is_told(tmp_path: Path, damage: str) -> None:
    store = Store.open(tmp_path)
    store.keep_result("task", ("aot", 7), {}, [FAILURE])
    store._connection.execute("UPDATE failures SET failure = ?", (damage,))
    with pytest.raises(UserError, match=r"store\.sqlite is damaged"):
        store.failures("task")


def test_a_file_that_is_no_store_is_told(tmp_path: Path) -> None:
    (tmp_path / stored.NAME).write_bytes(b"not a store" * 1000)
    with pytest.raises(UserError, match="file is not a database"), explain_full_disk(tmp_path):
        Store.open(tmp_path)
    (tmp_path / stored.NAME).unlink()
    with sqlite3.connect(tmp_path / stored.NAME) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(UserError, match="has version 99"):
        Store.open(tmp_path)


def test_a_line_of_the_log_that_was_cut_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"at": "2026')
    Store.open(tmp_path).events.note("started")
    cut, line = (tmp_path / "events.jsonl").read_text().splitlines()
    assert (cut, json.loads(line)["event"]) == ('{"at": "2026', "started")


def test_two_campaigns_in_one_folder_are_refused(tmp_path: Path) -> None:
    lock = RunLock.take(tmp_path)
    assert not lock.stale
    with pytest.raises(UserError, match=r"is in use by pid \d+ on "):
        RunLock.take(tmp_path)
    lock.release()
    RunLock.take(tmp_path).release()


def test_the_lock_of_a_process_that_ended_is_taken_and_told(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("pid 123 on somewhere")
    assert RunLock.take(tmp_path).stale == "pid 123 on somewhere"


# --- folders of findings --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finding() -> Finding:
    failure: Any = run_shard(Shard(3, "functionalize")).failures[0]
    reduced = reduce_failure(failure)
    assert reduced is not None
    return reduced


def test_all_that_is_known_of_a_finding_comes_back(finding: Finding, tmp_path: Path) -> None:
    named = replace(
        finding,
        wrong_part="post_grad: remove_noop_ops",
        cause="the inverse of expand subtracts",
        known="expand-inverse",
        latent=True,
        user_level={"aot_eager": "shows", "inductor": "does not show"},
    )
    for written in (finding, named):
        write_finding(tmp_path / "findings" / finding.identifier, written)
        assert read_finding(tmp_path / "findings" / finding.identifier) == written
        assert read_findings(tmp_path) == [written]


def test_a_confirmed_finding_moves_with_its_reproducer(finding: Finding, tmp_path: Path) -> None:
    files = RunFolder.create(tmp_path / "run")
    files.prepare()
    files.write(UNCONFIRMED, finding, "pass\n")
    assert (files.path(UNCONFIRMED, finding.identifier) / "reproducer.py").is_file()
    assert read_findings(files.folder) == []
    files.write(FINDINGS, finding, "pass\n")
    files.remove_leftovers()
    assert read_findings(files.folder) == [finding]
    assert (files.path(FINDINGS, finding.identifier) / "reproducer.py").is_file()
    assert not (files.folder / "unconfirmed").exists()
    files.write(UNCONFIRMED, finding, "pass\n")  # as by a campaign that was killed at this point
    files.write(FINDINGS, finding, "pass\n")
    assert not files.path(UNCONFIRMED, finding.identifier).exists()


def test_suspicions_replace_those_of_an_earlier_end_and_latent_findings_stay(finding, tmp_path):
    files = RunFolder.create(tmp_path / "run")
    earlier, later, latent = (replace(finding, identifier=it) for it in ("aot-1", "aot-2", "x"))
    files.write(SUSPICIONS, latent)
    files.write_suspicions([earlier], {"x"})
    files.write_suspicions([later], {"x"})
    assert {path.name for path in files.folder.glob("suspicions/*")} == {"aot-2", "x"}
    assert read_finding(files.path(SUSPICIONS, "aot-2")) == later


def test_a_run_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match="is not empty"):
        RunFolder.create(tmp_path)


@pytest.mark.parametrize("name", ["program.json", "finding.json"])
def test_a_missing_file_is_named(finding: Finding, tmp_path: Path, name: str) -> None:
    write_finding(tmp_path, finding)
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match=name):
        read_finding(tmp_path)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"version": 99}', "null"])
def test_a_damaged_file_is_named(finding: Finding, tmp_path: Path, damage: str) -> None:
    write_finding(tmp_path, finding)
    (tmp_path / "finding.json").write_text(damage)
    with pytest.raises(UserError, match=r"finding\.json"):
        read_finding(tmp_path)


def test_a_program_with_an_unknown_op_is_refused(finding: Finding, tmp_path: Path) -> None:
    write_finding(tmp_path, finding)
    data = json.loads((tmp_path / "program.json").read_text())
    data["instructions"][0]["op"] = "os.system.default"
    (tmp_path / "program.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"instructions\[0\]"):
        read_finding(tmp_path)
