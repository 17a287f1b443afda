"""Foreign files are judged, or refused in one line, quickly. Nothing is written outside.

HOSTILE_FILES says how many files are made (1,000: `make hostile`).
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.campaigns.store.store import Store
from aliasproof.commands.command_line import run
from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage
from aliasproof.ir.serialization import to_json
from aliasproof.judge.attribution import Symptom
from aliasproof.oracles.verdict import Violation
from tests.security import hostile_files as hostile

COUNT = int(os.environ.get("HOSTILE_FILES", "100"))
LONGEST = 30.0  # seconds of processor time
BAD_INPUT, JUDGED = 2, (0, 1, 4)

PROGRAM = Program(
    (Storage(torch.float32, 8), Storage(torch.int64, 4, ("1", "2", "3", "0"))),
    (
        Input("x0", 0, torch.float32, (2, 4), (4, 1)),
        Input("x1", 0, torch.float32, (4,), (2,)),
        Input("x2", 1, torch.int64, (4,), (1,)),
    ),
    (
        Instruction("aten.select.int", (Ref("x0"), 0, 1), (), ("v0",)),
        Instruction("aten.add_.Tensor", (Ref("v0"), Ref("x1")), (("alpha", 2),)),
        Instruction("aten.expand.default", (Ref("v0"), (3, 4)), (), ("v1",)),
        Instruction("aten.clone.default", (Ref("v1"),), (), ("v2",)),
        Instruction("aten.index_select.default", (Ref("x1"), 0, Ref("x2")), (), ("v3",)),
        Instruction("aten.full.default", ((2, 2), 7), (), ("v4",)),
    ),
    ("v2", "v3", "v4"),
)
FINDING = Finding(
    identifier="aot-values-1",
    target="aot",
    oracle="values",
    kind="wrong value",
    place="output 0",
    evidence={"eager": 1.0, "target": 2.0},
    program=PROGRAM,
    original=PROGRAM,
    seed=3,
    tried=5,
    accepted=2,
    count=1,
    torch_version=torch.__version__,
)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A true finding, and a true store with a run, a failure and a finding."""
    folder = tmp_path_factory.mktemp("originals")
    write_finding(folder / "finding", FINDING)
    (folder / "run").mkdir()
    store = Store.open(folder / "run")
    store.keep_plan(Plan(("aot",), programs=25))
    symptom = Symptom("aot", "values", "wrong value")
    failure = Failure(
        symptom, PROGRAM, 3, violation=Violation("values", "wrong value", "output 0", {})
    )
    kept = store.keep_failure("a task", failure)
    store.keep_finding(FINDING, "raise SystemExit", "reduced")
    store.keep_occurrence(FINDING.identifier, kept.task, kept.number)
    shown = {"shown": True, "output": "BUG", "ending": "exits 1"}
    store.keep_confirmation(FINDING.identifier, "reproduced", shown)
    store.close()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder that no command may read or change."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.json").write_text('{"secret": "do not show"}')
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    yield folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.fixture
def told(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """Run a command. It judges, or refuses in one line, within seconds."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> int:
        capfd.readouterr()
        started = time.process_time()
        code = run([str(each) for each in arguments])
        seconds, (out, err) = time.process_time() - started, capfd.readouterr()
        assert "\x1b" not in out, arguments
        assert code in (BAD_INPUT, *JUDGED), (arguments, err[-1500:])
        assert "Traceback" not in err, (arguments, err[-1500:])
        assert "do not show" not in err
        assert "\x1b" not in err
        if code == BAD_INPUT:
            lines = [line for line in err.splitlines() if line.startswith("aliasproof: ")]
            assert len(lines) == 1, err
            assert lines[0].isprintable(), lines
            assert len(lines[0]) < 2000
        assert seconds < LONGEST, arguments
        return code

    return call


# All forms; only `show` runs a finding again.
FORMS = (f"--format={name}" for name in ("html", "junit", "sarif", "github", "json"))
REPORTED = ("--seconds", 0, "--out", "reported", *FORMS)


def shares(count: int) -> list[int]:
    return list(range(-(-count // 10)))


@pytest.mark.parametrize("share", shares(COUNT * 5 // 10))
def test_programs(share: int, tmp_path: Path, outside: Path, told: Callable[..., int]) -> None:
    for seed in range(10 * share, 10 * share + 10):
        chance = random.Random(f"program {seed}")
        file = hostile.program_file(tmp_path, json.loads(json.dumps(to_json(PROGRAM))), chance)
        told("check", file, "--target", "identity", "--in-process")
        told("explain", file)


@pytest.mark.parametrize("share", shares(COUNT * 2 // 10))
def test_findings(share, tmp_path, originals, outside, told):
    for seed in range(10 * share, 10 * share + 10):
        (folder := tmp_path / str(seed)).mkdir()
        chance = random.Random(f"finding {seed}")
        finding = hostile.finding_folder(folder, originals / "finding", chance)
        told("show", finding)
        told("report", finding, *REPORTED)


@pytest.mark.parametrize("share", shares(COUNT * 3 // 10))
def test_stores(share, tmp_path, originals, outside, told):
    for seed in range(10 * share, 10 * share + 10):
        (folder := tmp_path / str(seed)).mkdir()
        chance = random.Random(f"store {seed}")
        run = hostile.run_with_store(folder, originals / "run" / "store.sqlite", chance)
        told("report", run, *REPORTED)
        told("triage", run)
        told("merge", folder / "joined", run)
        made = {path.name for path in folder.iterdir()}
        assert made <= {"run", "joined"}, made


@pytest.mark.parametrize("trap", hostile.TRAPS.values(), ids=hostile.TRAPS)
def test_traps(trap, tmp_path, originals, outside, told):
    trap(tmp_path / "trap.json", outside)
    assert told("check", tmp_path / "trap.json", "--in-process") == BAD_INPUT
    for name in ("program.json", "finding.json"):
        folder = tmp_path / f"finding of {name}"
        write_finding(folder, FINDING)
        (folder / name).unlink()
        trap(folder / name, outside)
        assert told("show", folder) == BAD_INPUT
        if name == "program.json":
            assert told("minimize", folder) == BAD_INPUT
    for name in ("events.jsonl", ".lock", "findings"):
        run_folder = tmp_path / f"run with {name}"
        run_folder.mkdir()
        (run_folder / "store.sqlite").write_bytes((originals / "run/store.sqlite").read_bytes())
        trap(run_folder / name, outside)
        told("report", run_folder, *REPORTED)
        told("triage", run_folder)
        told("merge", tmp_path / f"joined {name}", run_folder)


def test_a_link_takes_no_file_out_of_a_run(tmp_path, originals, outside, told):
    joined = tmp_path / "joined"
    assert told("merge", joined, originals / "run") == 0
    (joined / "findings" / FINDING.identifier / "program.json.partial").symlink_to(outside / "new")
    assert told("merge", joined, originals / "run") == 0
    (moved := joined / "findings" / FINDING.identifier).rename(tmp_path / "moved")
    moved.symlink_to(outside)
    assert told("merge", joined, originals / "run") == BAD_INPUT
    (joined / "findings").rename(tmp_path / "all")
    (joined / "findings").symlink_to(outside)
    assert told("merge", joined, originals / "run") == BAD_INPUT


def test_a_store_names_no_code_to_import(tmp_path, originals, told, capfd):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(graph): pass\n")
    (run_folder := tmp_path / "run").mkdir()
    store = Store.open(run_folder)
    store.keep_plan(Plan(("evil.py:f",), programs=25))
    store.close()
    assert told("fuzz", "--run", run_folder) == BAD_INPUT
    assert not (tmp_path / "ran").exists()


def test_a_reproducer_in_a_folder_is_not_run(tmp_path: Path, told: Callable[..., int]) -> None:
    deadly = replace(FINDING, target="identity", oracle="errors", kind="dies of signal 11")
    write_finding(tmp_path / "finding", deadly)
    script = tmp_path / "finding" / "reproducer.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert told("show", tmp_path / "finding") == 0
    assert not (tmp_path / "ran").exists()
