"""The start of a command: a folder of its own for what Inductor compiles."""

import os
from pathlib import Path

import pytest

from aliasproof.commands.startup import use_own_compiler_cache
from tests.subprocesses import aliasproof

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
