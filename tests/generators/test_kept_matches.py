"""The result of a search for a plain match is cached; if that fails, each process searches."""

import json
import os
import sqlite3
from pathlib import Path

import pytest
import torch

from aliasproof.generators.rules import derived
from aliasproof.generators.rules.derived import look_up
from aliasproof.ir.program import Program
from tests.short_programs import of_vectors

PROGRAM = of_vectors("aten.add_.Scalar(x0, 1)\nreturn (x0,)", 0)


class Search:
    """A search with a given result, which counts its calls."""

    def __init__(self, finds: Program | str) -> None:
        self.finds, self.asked = finds, 0

    def __call__(self, rule: str, kind: str, number: int) -> Program | str:
        self.asked += 1
        return self.finds


def again() -> None:
    """Reset the state, as in another process that has not opened the file."""
    derived._opened.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ALIASPROOF_CACHE", str(tmp_path / "kept"))
    again()
    yield tmp_path / "kept"
    again()


@pytest.mark.parametrize("finds", [PROGRAM, "eager accepts no draw: it is planted"])
def test_another_process_has_what_one_found(folder, finds) -> None:
    first, second = Search(finds), Search("not asked")
    assert look_up(first, "rule", "usual", 0) == finds
    again()
    assert look_up(second, "rule", "usual", 0) == finds
    assert (first.asked, second.asked) == (1, 0)
    assert look_up(second, "rule", "usual", 1) == "not asked"


def test_a_change_of_the_sources_has_a_file_of_its_own(folder, monkeypatch) -> None:
    look_up(Search(PROGRAM), "rule", "usual", 0)
    monkeypatch.setattr(torch.version, "git_version", "another")
    again()
    assert look_up(Search("new"), "rule", "usual", 0) == "new"
    assert len(list(folder.glob("*.sqlite"))) == 2


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "3",
        "{}",
        '{"program": {"version": 1}}',
        json.dumps({"program": {"version": 1, "instructions": [{"op": "os.system"}]}}),
    ],
)
def test_a_damaged_entry_is_searched_again_and_replaced(folder, text: str) -> None:
    look_up(Search(PROGRAM), "rule", "usual", 0)
    (file,) = folder.glob("*.sqlite")
    with sqlite3.connect(file) as other:
        other.execute("UPDATE matches SET found = ?", (text,))
    other.close()
    again()
    search = Search(PROGRAM)
    assert look_up(search, "rule", "usual", 0) == PROGRAM == look_up(search, "rule", "usual", 0)
    assert search.asked == 1


def test_without_a_file_each_process_searches(folder, monkeypatch) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where the folder should be")
    assert look_up(Search(PROGRAM), "rule", "usual", 0) == PROGRAM
    monkeypatch.setenv("ALIASPROOF_CACHE", "")
    again()
    assert look_up(Search("other"), "rule", "usual", 0) == "other"


def test_a_file_that_is_none_of_sqlite_is_left_alone(folder) -> None:
    look_up(Search(PROGRAM), "rule", "usual", 0)
    again()
    for each in folder.iterdir():
        each.write_bytes(b"not a database" * 100)
    search = Search(PROGRAM)
    assert look_up(search, "rule", "usual", 0) == PROGRAM
    assert search.asked == 1


def test_the_tests_keep_nothing_for_later() -> None:
    assert "aliasproof-" in Path(os.environ["ALIASPROOF_CACHE"]).name
