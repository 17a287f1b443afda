"""The start of a command: a folder of its own for what Inductor compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aliasproof.commands.startup import use_own_compiler_cache

PROGRAM = """
import torch

def program(x):
    return x.sin().mul_(2)

def inputs():
    return (torch.arange(4.),)
"""
# What `CompilerBisector.update_bisect_status` writes (torch/_inductor/compiler_bisector.py).
ACTIVE = "backend=inductor\nsubsystem=\n"


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(PROGRAM)
    clean = {key: it for key, it in os.environ.items() if not key.startswith("TORCHINDUCTOR")}
    return subprocess.run(
        [sys.executable, "-m", "aliasproof", "check", "mine.py", "-t", "aot-eager"],
        cwd=folder,
        env=clean | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_state_that_the_bisector_left_is_named_and_not_read(tmp_path: Path) -> None:
    cache = tmp_path / "torchinductor_someone"
    state = cache / "bisect" / "bisect_status.txt"
    state.parent.mkdir(parents=True)
    state.write_text(ACTIVE)
    done = check(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"torch's bisector is active: {state}" in done.stderr
    # Inductor was not called in place of `aot_eager`: it would have written there.
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
