"""The tests that `make` runs; `make test TORCH=...` has its own folder and pins."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def commands(folder: Path, *arguments: str) -> str:
    """What make would run in a folder without an environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    # The tests may run inside make, whose flags and variables must not reach this one.
    of_make = re.compile("MAKE.*|TORCH|EXTRAS|ARGS")
    environment = {name: text for name, text in os.environ.items() if not of_make.fullmatch(name)}
    command = ["make", "-n", "--no-print-directory", *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout


@pytest.mark.parametrize("goal", ["test", "fuzz"])
def test_another_torch_has_a_folder_of_its_own(tmp_path: Path, goal: str) -> None:
    lines = commands(tmp_path, goal, "TORCH=2.15.0").splitlines()
    assert any(line.endswith("-m venv --clear .venv-2.15.0") for line in lines)
    assert lines[-1].startswith(".venv-2.15.0/bin/")
    assert not re.search(r"\.venv(?!-2\.15\.0)", "\n".join(lines))


def test_only_the_pin_of_torch_changes(tmp_path: Path) -> None:
    lines = commands(tmp_path, "install", "TORCH=2.15.0").splitlines()
    [derive] = [line for line in lines if line.startswith("sed ")]
    (tmp_path / ".venv-2.15.0").mkdir()
    subprocess.run(derive, cwd=tmp_path, shell=True, check=True)  # noqa: S602 - our Makefile
    derived = (tmp_path / ".venv-2.15.0" / "constraints.txt").read_text()
    pinned = (ROOT / "constraints.txt").read_text()
    assert derived == re.sub(r"(?m)^torch==.*$", "torch==2.15.0", pinned)
    assert "torch==2.15.0\n" in derived
    assert "-c .venv-2.15.0/constraints.txt -e '.[dev]'" in "\n".join(lines)


def test_without_a_version_the_pins_are_those_of_the_file(tmp_path: Path) -> None:
    text = commands(tmp_path, "test")
    assert "-c constraints.txt -e '.[dev]'" in text
    assert "sed" not in text
    assert ".venv-" not in text


def test_what_a_person_names_comes_after_what_make_test_leaves_out(tmp_path: Path) -> None:
    """So `make test ARGS='-m cuda'` runs these tests: pytest uses the last of two `-m`."""
    *_, some = commands(tmp_path, "test", "ARGS=-m cuda").splitlines()
    *_, all_of_them = commands(tmp_path, "test-all", "ARGS=-m thorough").splitlines()
    assert some.endswith("-m pytest -n auto --dist worksteal -m 'not thorough' -m cuda")
    assert all_of_them.endswith("-m pytest -n auto --dist worksteal -m thorough")


def test_lint_has_the_rules_that_no_linter_knows(tmp_path: Path) -> None:
    assert ".venv/bin/python tests/quality/style.py" in commands(tmp_path, "lint").splitlines()


def test_ci_runs_every_test_once() -> None:
    made = re.findall(r"(?m)^make (.*)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert made == ["lint", "test-all"]
