"""What this machine lacks, or has left behind, costs one line; the rest works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.commands.startup import use_own_compiler_cache
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.devices import on_device
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.targets.registry import target
from tests.campaigns.made_findings import finding_of
from tests.subprocesses import aliasproof

REASON = "inductor needs a C++ compiler, and finds no 'no-such-compiler': install g++"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return aliasproof(*arguments, cwd=folder, CXX="no-such-compiler", COLUMNS="200")


@pytest.mark.parametrize("missing", ["the compiler", "the headers"])
def test_the_reason_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "the compiler":
        monkeypatch.setenv("CXX", "no-such-compiler")
    else:
        monkeypatch.setenv("CXX", sys.executable)
        monkeypatch.setattr("sysconfig.get_path", lambda _: "/nowhere")
    reason = target("inductor:symbolic").unavailable()
    assert reason is not None
    assert "install" in reason
    assert target("inductor-fx").unavailable() is None


def test_a_case_is_not_for_a_target_that_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = examine(Case.of_function(lambda x: x + 1, [torch.ones(3)]), target("inductor"))
    assert str(found.rejected).startswith(REASON)


def test_fuzz_goes_on_with_the_other_targets(tmp_path: Path) -> None:
    some = ("--target", "inductor", "--target", "identity", "--programs", "2", "--workers", "1")
    done = run(tmp_path, "fuzz", *some)
    assert done.returncode == 0, done.stderr
    assert f"left out: {REASON}" in done.stderr
    alone = run(tmp_path, "fuzz", "--target", "inductor", "--programs", "2")
    assert alone.returncode == 2
    assert REASON in alone.stderr


def test_check_has_a_row_with_the_reason(call, write_program, monkeypatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("COLUMNS", "200")
    file = write_program("return x + 1")
    done = call("check", "--in-process", file, "--target", "inductor", "--target", "identity")
    assert done.code == 0, done.err
    assert REASON in done.out


# --- the cache of the compiler --------------------------------------------------------------------


# What `CompilerBisector.update_bisect_status` writes (torch/_inductor/compiler_bisector.py).
ACTIVE = "backend=inductor\nsubsystem=\n"


def test_a_state_that_the_bisector_left_is_named_and_not_read(tmp_path, monkeypatch, write_program):
    for name in [name for name in os.environ if name.startswith("TORCHINDUCTOR")]:
        monkeypatch.delenv(name)
    cache = tmp_path / "torchinductor_someone"
    state = cache / "bisect" / "bisect_status.txt"
    state.parent.mkdir(parents=True)
    state.write_text(ACTIVE)
    file = write_program("return x.sin().mul_(2)", "torch.arange(4.)")
    done = aliasproof("check", file, "-t", "aot-eager", cwd=tmp_path, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"torch's bisector is active: {state}" in done.stderr
    # If Inductor had run in place of `aot_eager`, it would have written there.
    assert [path.name for path in cache.iterdir()] == ["bisect"]


@pytest.mark.parametrize("active", [False, True])
def test_a_folder_of_the_user_is_kept_unless_the_bisector_left_a_state(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    active: bool,
) -> None:
    (tmp_path / "bisect").mkdir()
    if active:
        (tmp_path / "bisect" / "bisect_status.txt").write_text(ACTIVE)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    use_own_compiler_cache()
    assert (os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)) is not active
    assert ("bisector is active" in capsys.readouterr().err) is active


# --- another device -------------------------------------------------------------------------------


PROGRAM = on_device(known_bugs()["expand-inverse"].program, "cuda:99")
WHAT = ("aot", "values", "wrong value", "output 0")
FINDING = finding_of(PROGRAM, *WHAT, identifier="aot-values-00000000")


@pytest.fixture
def finding(tmp_path):
    folder = tmp_path / "runs" / "one" / "findings" / "aot-values-00000000"
    write_finding(folder, FINDING)
    return folder


def test_show_does_not_run_it_and_says_why(call, finding):
    outcome = call("show", finding)
    assert outcome.code == 0
    assert "Not run again: device 'cuda:99'" in " ".join(outcome.out.split())
    assert "def program" in outcome.out
    assert call("show", finding, "--json").json()["status"] == "not run"


@pytest.mark.parametrize("command", ["check", "minimize"])
def test_what_must_run_it_ends_in_one_line(call, finding, command):
    assert "device 'cuda:99'" in call(command, finding).refusal


def test_it_can_be_checked_on_another_device(call, finding):
    outcome = call("check", finding, "--device", "cpu", "--target", "aot")
    assert outcome.code == 1
    assert "wrong value" in outcome.out


@pytest.mark.parametrize("command", ["explain", "prove"])
def test_what_needs_no_device_takes_the_cpu(call, finding, command):
    assert call(command, finding).code in (0, 1)
