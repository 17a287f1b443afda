"""`aliasproof fuzz`, as a user starts it: what it prints, keeps and exits with."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aliasproof.campaigns.publish.confirmation import NOT_RUN
from tests.subprocesses import ROOT, aliasproof, python

COMMAND = ("fuzz", "--workers", "2")
# The first seed that finds something is used, so these tests survive changes of the generator.
SEEDS = range(5)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A campaign that found something: its seed, its folder, and what it printed."""
    for seed in SEEDS:
        folder = tmp_path_factory.mktemp("campaign")  # an own folder, so that it has only one run
        given = f"--target functionalize --programs 25 --seed {seed} --fail-on-findings"
        done = aliasproof(*COMMAND, *given.split(), cwd=folder, COLUMNS="100")
        if done.returncode:
            return seed, folder, done
    pytest.fail("no seed finds anything")


def test_what_is_printed(campaign):
    _, folder, done = campaign
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "resource_tracker" not in done.stderr, "a semaphore is left"
    assert "Fuzzing functionalize with 2 workers" in done.stderr
    run = next((folder / "runs").iterdir())
    names = [finding.name for finding in (run / "findings").iterdir()]
    assert any(f"aliasproof show runs/{run.name}/findings/{it}" in done.stdout for it in names)
    assert any(f"runs/{run.name}/findings/{it}/reproducer.py" in done.stdout for it in names)
    assert "def program(" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("25 programs in ")


def test_what_is_kept(campaign):
    _, folder, done = campaign
    run = next((folder / "runs").iterdir())
    kept = {"findings", "unconfirmed", "suspicions", "run.json", "store.sqlite", "events.jsonl"}
    assert {path.name for path in run.iterdir()} <= {*kept, ".lock"}
    outcome = json.loads((run / "run.json").read_text())
    assert {entry["identifier"] for entry in outcome["findings"]} == {
        path.name for path in (run / "findings").iterdir()
    }
    for finding in (run / "findings").iterdir():
        files = {"program.json", "finding.json", "issue.md", "reproducer.py"}
        assert {path.name for path in finding.iterdir()} == files
        assert finding.name in done.stdout


def test_each_new_finding_was_run_under_torch_compile(campaign):
    _, folder, _ = campaign
    for finding in folder.glob("runs/*/findings/*"):
        data = json.loads((finding / "finding.json").read_text())
        answers, known = data["user level"], data["known"]
        # Inductor takes seconds, and a known bug needs no further evidence.
        assert set(answers) == (set() if known else {"aot_eager", "inductor"})
        assert NOT_RUN not in answers.values()
        script, issue = ((finding / name).read_text() for name in ("reproducer.py", "issue.md"))
        assert script in issue
        assert len(script.splitlines()) <= 45
        if "shows" in answers.values():
            assert "torch.compile(program, backend=" in script


def test_the_reproducer_shows_the_bug(campaign):
    _, folder, _ = campaign
    script = next(folder.glob("runs/*/findings/*/reproducer.py"))
    done = python("-I", script, cwd=Path("/"))
    assert done.returncode == 1
    assert "BUG: " in done.stdout


def test_the_same_seed_finds_the_same(campaign, tmp_path):
    seed, folder, _ = campaign
    arguments = f"--target functionalize --programs 25 --seed {seed} --run again --json"
    done = aliasproof(*COMMAND, *arguments.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr  # findings are no failure of the command
    again = json.loads(done.stdout)
    before = json.loads(next(folder.glob("runs/*/run.json")).read_text())
    assert again["programs"] == before["programs"]
    assert again["programs"]["functionalize"]["programs"] == 25
    what = ("identifier", "kind", "count", "original")
    assert [[entry[key] for key in what] for entry in again["findings"]] == [
        [entry[key] for key in what] for entry in before["findings"]
    ]
    for entry in again["findings"]:
        (first,) = folder.glob(f"runs/*/findings/{entry['identifier']}/program.json")
        assert (tmp_path / entry["folder"] / "program.json").read_text() == first.read_text()


def test_ctrl_c_keeps_what_was_found(campaign, tmp_path):
    seed, _, _ = campaign
    # With one worker, few findings await confirmation when the signal comes.
    arguments = f"--target functionalize --seconds 100 --seed {seed} --run run --workers 1"
    running = subprocess.Popen(
        [sys.executable, "-m", "aliasproof", *COMMAND, *arguments.split()],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"},
    )
    try:
        deadline = time.monotonic() + 90
        while (
            not list(tmp_path.glob("run/findings/*/reproducer.py")) and time.monotonic() < deadline
        ):
            time.sleep(0.1)
        kept = [path.name for path in tmp_path.glob("run/findings/*")]
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
        out, err = running.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert "resource_tracker" not in err
    assert "Interrupted. Findings so far are kept." in out
    assert kept
    assert set(kept) <= {path.name for path in tmp_path.glob("run/findings/*")}
    assert all(name in out for name in kept)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["interrupted"] is True
