"""A target that cannot run on this machine costs one line; the other targets run."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.targets.registry import target
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


def test_check_has_a_row_with_the_reason(tmp_path: Path, write_program) -> None:
    done = run(
        tmp_path,
        "check",
        write_program("return x + 1"),
        "--target",
        "inductor",
        "--target",
        "identity",
    )
    assert done.returncode == 0, done.stderr
    assert REASON in done.stdout
