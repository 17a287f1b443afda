"""`make lint` reports a mistake of each rule of `style.py`, in file and line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.quality.style import main

BUDGET = 500  # lines of source


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository without a mistake: a package, a room beside it, tests and documents."""
    for folder in ("aliasproof", "oracles", "tests", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "aliasproof" / "oracles").symlink_to("../oracles")
    for file in ("aliasproof/__init__.py", "oracles/__init__.py", "oracles/aliasing.py"):
        (tmp_path / file).touch()
    (tmp_path / "pyproject.toml").write_text(f"[tool.style]\nsource_lines = {BUDGET}\n")
    return tmp_path


@pytest.fixture
def style(repository: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[], tuple[object, ...]]:
    """Gives the exit status, and the lines that are printed."""
    return lambda: (main([str(repository)]), capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("file", "text", "mistake"),
    [
        ("docs/design.md", "Regions:\n\nit lies there.\n", ":3: word: 'lies' in "),
        ("CHANGELOG.md", "one hazard\n", ":1: word: 'hazard' in "),
        ("oracles/values.py", "x = 1\nf('a token')\n", ":2: word: 'token' in "),
        (
            "aliasproof/commands/command_line.py",
            '"""In the same place."""\n',
            ":1: word: 'same place'",
        ),
        ("tests/test_a.py", "\nimport oracles\n", ":2: import: import 'aliasproof.oracles'"),
        (
            "tests/test_a.py",
            "from oracles.b import c\n",
            ":1: import: import 'aliasproof.oracles.b'",
        ),
    ],
)
def test_a_mistake_is_reported(repository: Path, style, file: str, text: str, mistake: str) -> None:
    assert style() == (0, [])
    (repository / file).parent.mkdir(exist_ok=True)
    (repository / file).write_text(text)
    status, lines = style()
    assert status == 1
    assert any(line.startswith(file + mistake) for line in lines), lines


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("oracles/values.py", '"""It lies there."""\n\nf("token")\n'),
        ("tests/test_long.py", "\n" * (BUDGET + 1)),
        ("oracles/values.py", "\n" * BUDGET),
        ("tests/test_a.py", "import aliasproof.oracles\nfrom . import oracles\n"),
    ],
)
def test_what_is_allowed_is_not_reported(repository: Path, style, file: str, text: str) -> None:
    (repository / file).write_text(text)
    assert style() == (0, [])


def test_source_beyond_the_budget_is_reported(repository: Path, style) -> None:
    for name in ("values", "metadata"):
        (repository / "oracles" / f"{name}.py").write_text("\n" * (BUDGET // 2 + 1))
    mistake = f"pyproject.toml:1: size: {BUDGET + 2} lines of source, at most {BUDGET}"
    status, [line] = style()
    assert status == 1
    assert line.startswith(mistake)
