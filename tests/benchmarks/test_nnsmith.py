"""NNSmith beside aliasproof: what its command prints and writes is counted, what fails is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aliasproof.programs.errors import UserError
from benchmarks.__main__ import main
from benchmarks.nnsmith import BesideNNSmith, Searched, _nnsmith, measure

HERE = Path(sys.executable)
# Stands in for its command: two programs, and three reports of two symptoms.
COMMAND = """
import sys
from pathlib import Path

options = dict(each.split("=", 1) for each in sys.argv[1:])
assert options["backend.type"] == "pt2 backend@aot_eager"
assert options["mgen.max_nodes"] == "5"
logs, reports = Path(options["hydra.run.dir"]), Path(options["fuzz.root"])
logs.mkdir(parents=True)
line = "[2026-11-22 13:48:08,785][fuzz][INFO] - Timing: gen: 15.6ms, eval: 77.4ms, "
(logs / "fuzz.log").write_text(f"{line}\\n[fuzz][WARNING] - Failed model seed: 1\\n{line}\\n")
for number, (kind, text) in enumerate((
    ("Symptom.EXCEPTION-Stage.COMPILATION", "Traceback\\nValueError: size 12 is wrong\\n\\nadvice"),
    ("Symptom.EXCEPTION-Stage.COMPILATION", "Traceback\\nValueError: size 7 is wrong\\n\\nadvice"),
    ("Symptom.INCONSISTENCY-Stage.VERIFICATION", "Not equal to tolerance 1e-3"),
)):
    folder = reports / f"bug-{kind}-{number}"
    folder.mkdir(parents=True)
    (folder / "err.log").write_text(text)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose command is the one above."""
    package = tmp_path / "checkout" / "nnsmith" / "cli"
    package.mkdir(parents=True)
    (package / "fuzz.py").write_text(COMMAND)
    return tmp_path / "checkout"


def test_programs_and_symptoms_are_counted(checkout: Path, tmp_path: Path) -> None:
    found = _nnsmith(checkout, HERE, "aot_eager", 2, tmp_path / "run")
    assert found.programs == 2
    assert found.causes == (
        "exception-compilation: ValueError: size # is wrong",
        "inconsistency-verification: Not equal to tolerance #",
    )
    assert found.cpu > 0


def test_a_command_that_fails_is_told_with_what_to_install(checkout: Path, tmp_path: Path) -> None:
    (checkout / "nnsmith" / "cli" / "fuzz.py").write_text("import no_such_module")
    with pytest.raises(UserError, match=r"no_such_module.*hydra-core"):
        _nnsmith(checkout, HERE, "aot_eager", 2, tmp_path / "run")
    with pytest.raises(UserError, match=r"has no nnsmith/cli/fuzz\.py; give a clone"):
        measure(tmp_path, HERE)


def test_it_needs_a_checkout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for options in (["nnsmith"], ["nnsmith", "--checkout", str(tmp_path)]):
        with pytest.raises(SystemExit) as raised:
            main(options)
        assert raised.value.code == 2
        assert "clone" in capsys.readouterr().err


def test_the_table_compares_by_processor_time() -> None:
    theirs = Searched(80, 10.0, 10.0, ("an error",))
    ours = Searched(640, 20.0, 20.0, (), searching=10.0)
    found = BesideNNSmith({}, 10, {"aot_eager": theirs}, {"aot_eager": ours})
    (table,) = found.tables()
    assert [row[3] for row in table.rows] == ["8.00", "32.00", "64.00"]
    assert "4.0 times, 8.0 times while searching" in table.notes[1]
