"""A project whose packages are named like ours."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from aliasproof.shadowing import OWN

REPOSITORY = Path(__file__).resolve().parents[2]


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_our_packages_are_looked_at() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert [*OWN] == project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_a_package_of_the_project_that_hides_ours_is_named(tmp_path: Path) -> None:
    hidden = tmp_path / "targets" / "__init__.py"
    hidden.parent.mkdir()
    hidden.write_text("MINE = 1\n")
    done = python(tmp_path, "-c", "from aliasproof import assert_equivalent")
    error = done.stderr.splitlines()[-1]
    assert error.startswith("aliasproof.shadowing.Shadowed: aliasproof has a package 'targets'")
    assert str(hidden) in error
    command = python(tmp_path, "-m", "aliasproof", "targets")
    assert command.returncode == 2
    assert len(command.stderr.splitlines()) == 1
    # Also if it was imported before.
    done = python(tmp_path, "-c", "import targets; from aliasproof import check")
    assert f"Python finds {hidden} in its place" in done.stderr


def test_a_module_or_a_folder_without_python_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()  # a namespace package comes after every other
    (tmp_path / "trials.py").write_text("")
    done = python(tmp_path, "-c", "from aliasproof import Program")
    assert f"Python finds {tmp_path / 'trials.py'} in its place" in done.stderr
    (tmp_path / "trials.py").unlink()
    assert python(tmp_path, "-c", "from aliasproof import UserError").returncode == 0
