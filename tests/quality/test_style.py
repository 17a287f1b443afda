"""`make lint` reports a mistake of each rule of `style.py`, in file and line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STYLE = Path(__file__).with_name("style.py")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository without a mistake: a package, a room beside it, tests and documents."""
    for folder in ("aliasproof", "oracles", "tests", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "aliasproof" / "oracles").symlink_to("../oracles")
    for file in ("aliasproof/__init__.py", "oracles/__init__.py", "oracles/aliasing.py"):
        (tmp_path / file).touch()
    return tmp_path


def style(repository: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, STYLE, repository], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def function(lines: int) -> str:
    return "def f():\n" + "    f()\n" * (lines - 1)


@pytest.mark.parametrize(
    ("file", "text", "mistake"),
    [
        ("docs/design.md", "Regions:\n\nit lies there.\n", ":3: word: 'lies' in "),
        ("CHANGELOG.md", "one hazard\n", ":1: word: 'hazard' in "),
        ("oracles/values.py", "x = 1\nf('a token')\n", ":2: word: 'token' in "),
        ("aliasproof/command_line.py", '"""In the same place."""\n', ":1: word: 'same place'"),
        ("aliasproof/aliasing.py", "", ":1: name: module 'aliasing' is in "),
        ("oracles/values.py", "class A: ...\nclass A: ...\n", ":2: name: class 'A' is in "),
        ("tests/test_long.py", "\n" * 401, ":401: size: 401 lines, at most 400"),
        ("oracles/values.py", "\n" + function(41), ":2: size: 'f' has 41 lines, at most 40"),
        ("tests/test_a.py", "\nimport oracles\n", ":2: import: import 'aliasproof.oracles'"),
        (
            "tests/test_a.py",
            "from oracles.b import c\n",
            ":1: import: import 'aliasproof.oracles.b'",
        ),
    ],
)
def test_a_mistake_is_reported(repository: Path, file: str, text: str, mistake: str) -> None:
    assert style(repository) == (0, [])
    (repository / file).write_text(text)
    status, lines = style(repository)
    assert status == 1
    assert any(line.startswith(file + mistake) for line in lines), lines


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("oracles/values.py", '"""It lies there."""\n\nf("token")\n'),
        ("oracles/metadata.py", "class Region: ...\n"),
        ("tests/test_long.py", "\n" * 400),
        ("oracles/values.py", function(40)),
        ("tests/test_a.py", "import aliasproof.oracles\nfrom . import oracles\n"),
    ],
)
def test_what_is_allowed_is_not_reported(repository: Path, file: str, text: str) -> None:
    (repository / file).write_text(text)
    (repository / "aliasproof" / "metadata.py").write_text("class Region: ...\n")
    assert style(repository) == (0, [])
