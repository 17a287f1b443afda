"""A campaign of Python programs: findings, their folders, their scripts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aliasproof.campaigns.publish.python_reproducer import confirm, script
from aliasproof.campaigns.run import python_hunt
from aliasproof.campaigns.run.python_hunt import PythonHunt, judge_programs
from aliasproof.campaigns.store.python_finding import FILE, PythonFinding
from aliasproof.corpus.python_bugs import PythonBug
from aliasproof.programs.errors import InternalError, UserError
from aliasproof.programs.python_program import PythonProgram
from tests.wrong_python import WRONG

FINDING = PythonFinding(PythonProgram(WRONG), "aot-eager", "values", "wrong value", "base")


def test_a_folder_gives_the_finding_again(tmp_path: Path):
    folder = FINDING.save(tmp_path)
    assert folder.name == FINDING.signature
    assert PythonFinding.load(folder) == FINDING


@pytest.mark.parametrize(
    "change", [{"program": "import os"}, {"format": 0}, {"more": 1}, {"program": 3}]
)
def test_a_file_that_is_no_finding_is_refused(tmp_path: Path, change: dict[str, object]):
    folder = FINDING.save(tmp_path)
    (folder / FILE).write_text(json.dumps({**FINDING.to_json(), **change}))
    with pytest.raises(UserError):
        PythonFinding.load(folder)


def test_names_and_numbers_do_not_change_a_signature():
    other = PythonProgram(WRONG.replace("base", "whole").replace("8", "6"))
    assert replace(FINDING, program=other).signature == FINDING.signature
    assert replace(FINDING, oracle="aliasing").signature != FINDING.signature


def test_a_known_bug_is_recognised_by_what_it_needs():
    bug = PythonBug(
        "b", "", "", "aot-eager", "values", "^wrong", frozenset({"expand"}), FINDING.program
    )
    assert FINDING.is_of(bug)
    assert not FINDING.is_of(replace(bug, needs=frozenset({"unfold"})))
    assert not FINDING.is_of(replace(bug, target="inductor"))


@pytest.mark.thorough
def test_the_script_shows_the_difference_and_a_right_program_shows_none():
    differs, printed = confirm(FINDING)
    assert differs, printed
    right = replace(FINDING, program=PythonProgram(WRONG.replace(".expand(3, 4)", "")))
    differs, printed = confirm(right)
    assert not differs, printed


@pytest.mark.parametrize(
    ("oracle", "place"),
    [
        ("aliasing", "base, x"),
        ("objects", "base, x"),
        ("metadata", "x"),
        ("structure", "x"),
        ("errors", "call"),
        ("values", "out['a'].grad"),
    ],
)
def test_every_script_is_python(oracle: str, place: str):
    compile(script(replace(FINDING, oracle=oracle, place=place)), "script", "exec")


def test_a_script_defines_the_operators_that_it_calls():
    call = "torch.ops.aliasproof.double(base)\n    return"
    program = PythonProgram(FINDING.program.source.replace("return", call))
    text = script(replace(FINDING, program=program))
    assert text.index("import torch\n") < text.index("def double(") < text.index("def program(")
    compile(text, "script", "exec")


def test_programs_are_judged_by_number():
    judged = judge_programs(3, range(4), "identity", past_known=False)
    assert judged.outcomes.total() == 4
    assert judged.failing == []


@pytest.mark.thorough
def test_a_hunt_judges_all_programs_in_other_processes():
    hunt = PythonHunt(4, "dynamo", programs=25, seconds=500.0)
    findings = list(hunt.run())
    assert hunt.outcomes.total() == 25
    assert hunt.notes == []
    assert [finding for finding in findings if finding.target != "dynamo"] == []


def test_a_mistake_of_ours_is_told(monkeypatch):
    def fails(program: PythonProgram, target: str) -> None:
        raise InternalError("the watch failed")

    monkeypatch.setattr(python_hunt, "examine_python", fails)
    judged = judge_programs(3, range(2), "identity", past_known=False)
    assert judged.outcomes == {"mistakes": 2}
    assert judged.mistakes == ["program 0: the watch failed", "program 1: the watch failed"]
