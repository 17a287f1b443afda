"""`watch` shows a run that another process writes, and ends with it."""

import contextlib
import os
import socket
import sqlite3
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from aliasproof.campaigns.run.shard import ShardResult, Statistics
from aliasproof.campaigns.run.tasks import outcome_to_json
from aliasproof.campaigns.store.plan import Shard
from aliasproof.campaigns.store.run_contents import read_contents
from aliasproof.campaigns.store.run_view import Moment, RunReader
from aliasproof.campaigns.store.store import Store
from aliasproof.commands import watch
from aliasproof.reports.watched_run import bars
from tests.campaigns.test_confirmations import REDUCED
from tests.campaigns.test_merging import run


@pytest.fixture
def stored(tmp_path):
    """A run with one finding, and half a minute of throughput."""
    finding = replace(REDUCED, identifier="aot-values-1")
    folder = run(tmp_path / "run", finding, 1, confirmed=True)
    store = Store.open(folder)
    for number in range(1, 4):
        workers = (2, 900 * 1024, 500 * 1024)
        counts = (100 * number, number, number // 2)
        store.note_progress(10.0 * number, {}, counts, 1024 * number, workers)
    store.close()
    return folder


def test_an_ended_run_is_printed_once_and_left_as_it_was(call, stored):
    before = sorted(path.name for path in stored.iterdir())
    done = call("watch", "run")
    assert done.code == 0, done.err
    assert "run: ended" in done.out
    assert "0:30 elapsed, 25 programs" in done.out
    assert "aot-values-1 (reproduced, 1x)" in done.out
    [row] = [line for line in done.out.splitlines() if line.startswith("aot ")]
    assert row.split() == ["aot", "25", "1", "1"]
    assert "memory of the driver: 1 MiB at first, 3 MiB now" in done.out
    assert "900 MiB in 2 at last" in done.out
    assert sorted(path.name for path in stored.iterdir()) == before


def test_variants_are_counted_and_what_is_not_confirmed_is_no_finding(call, stored):
    store = Store.open(stored)
    shard = Shard(2, "aot:grad")
    result = outcome_to_json(ShardResult(shard, Statistics(programs=25, violating=1)))
    store.keep_result("another task", ("aot:grad", 2), result, [])
    store.keep_finding(replace(REDUCED, identifier="aot-values-2"), "", "reduced")
    store.close()
    done = call("watch", "run")
    assert "0:30 elapsed, 50 programs" in done.out
    assert "2 with a violation, 1 finding, 1 not confirmed" in " ".join(done.out.split())
    assert read_contents(stored).view.programs == {"aot": 25, "aot:grad": 25}
    assert read_contents(stored).targets == ("aot",)


@pytest.mark.parametrize("folder", [".", "nowhere", "empty"])
def test_what_is_no_run_is_told(call, folder, tmp_path):
    (tmp_path / "empty").mkdir()
    refusal = call("watch", folder).refusal
    assert f"{folder} has no store.sqlite; name the folder of a run" in refusal


def test_a_damaged_store_is_told(call, stored):
    (stored / "store.sqlite").write_bytes(b"no store at all, and longer than a header" * 10)
    assert "cannot be read" in call("watch", "run").refusal


def test_the_view_follows_a_run_and_ends_with_it(stored, monkeypatch):
    store, lock = Store.open(stored), stored / ".lock"
    lock.write_text(f"pid {os.getpid()} on {socket.gethostname()}")
    looks = []

    def write(seconds):
        """The progress of the run between two updates."""
        looks.append(seconds)
        if len(looks) == 2:
            lock.write_text("")
        store.keep_result(f"another {len(looks)}", ("aot", 9), {"statistics": {"programs": 7}})

    monkeypatch.setattr("time.sleep", write)
    shown = StringIO()
    console = Console(file=shown, force_terminal=True, width=100, height=60)
    reader = RunReader.open(stored)
    watch._live(reader, console)
    store.close()
    assert len(looks) == 2
    assert "running (pid" in shown.getvalue()
    assert "39 programs" in shown.getvalue(), "25, and 7 at each look"
    assert "run: ended" in shown.getvalue()


def test_a_driver_that_was_killed_runs_no_more(call, stored):
    name = f"pid {2**22 + 1} on {socket.gethostname()}"
    (stored / ".lock").write_text(name)
    done = call("watch", "run")
    assert f"run: killed ({name}); to go on: aliasproof fuzz --run run" in done.out
    assert "No findings so far" not in done.out


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("PRAGMA user_version = 99", "run/store.sqlite has version 99; this aliasproof reads 3"),
        ("DROP TABLE findings", "run/store.sqlite is damaged: it has no table findings"),
        ("CREATE VIEW v AS SELECT 1", "run/store.sqlite is no store: it has the view"),
    ],
)
@pytest.mark.parametrize("command", ["watch", "triage", "replay"])
def test_a_store_of_another_form_is_refused(call, stored, command, statement, told):
    with contextlib.closing(sqlite3.connect(stored / "store.sqlite")) as connection:
        connection.execute(statement)
        connection.commit()
    assert told in call(command, "run").refusal


@pytest.mark.parametrize("command", ["watch", "triage", "replay"])
def test_a_run_that_has_no_tables_yet_has_not_begun(call, tmp_path, command):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "store.sqlite").touch()
    assert "run has not begun" in call(command, "run").refusal


def test_time_is_cut_into_parts_of_equal_length(stored):
    view = RunReader.open(stored).view()
    assert view.moments[-1] == Moment(30.0, 300, 3, 1, 3072)
    assert view.rates(3) == [10.0, 10.0, 10.0]
    assert view.rates(60) == [10.0, 10.0, 10.0], "no more parts than rows"
    assert view.found(3) == [0, 1, 0]
    assert bars([0, 0.1, 100]) == " \u2581\u2588"
