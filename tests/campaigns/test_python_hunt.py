"""A campaign of Python programs: findings, their folders, their scripts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aliasproof.campaigns.publish.python_reproducer import confirm, script, title
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
    assert not FINDING.is_of(replace(bug, lacks=frozenset({"write"})))
    assert not FINDING.is_of(replace(bug, place="gradient"))


def test_a_mechanism_that_a_known_bug_does_without_is_another_cause():
    bug = PythonBug("b", "", "", "aot-eager", "values", "^wrong", frozenset(), FINDING.program)
    more = PythonProgram(WRONG.replace("x.expand(3, 4)", "x.data.expand(3, 4)"))
    assert not replace(FINDING, program=more).is_of(bug)
    assertion = replace(bug, oracle="errors", kind="raises")
    raised = replace(FINDING, program=more, oracle="errors")
    assert replace(raised, kind="raises AssertionError: idx").is_of(assertion)
    assert not replace(raised, kind="raises RuntimeError: no").is_of(assertion)


def test_an_error_that_is_not_raised_is_known_by_its_message():
    bug = PythonBug("b", "", "", "dynamo", "errors", "Error: no", frozenset(), FINDING.program)
    missing = replace(FINDING, target="dynamo", oracle="errors", kind="does not raise Error")
    assert replace(missing, evidence={"message": "no\nmore"}).is_of(bug)
    assert not replace(missing, evidence={"message": "yes"}).is_of(bug)


@pytest.mark.thorough
def test_the_script_shows_the_difference_and_a_right_program_shows_none():
    confirmation = confirm(FINDING)
    assert confirmation.shown, confirmation.output
    assert "expected: [0.0, 0.0" in confirmation.output
    assert confirmation.output.splitlines()[-1] == f"BUG: {title(FINDING)}"
    right = replace(FINDING, program=PythonProgram(WRONG.replace(".expand(3, 4)", "")))
    assert confirm(right).ending == "exits 0"


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


def test_programs_are_judged_by_number():
    judged = judge_programs(3, range(4), "identity", past_known=False)
    assert judged.outcomes.total() == 4
    assert judged.failing == []


@pytest.mark.thorough
def test_a_hunt_judges_all_programs_in_other_processes():
    hunt = PythonHunt(4, "dynamo", programs=25, seconds=500.0)
    findings = [finding for finding, _ in hunt.run()]
    assert hunt.outcomes.total() == 25
    assert hunt.notes == []
    assert [finding for finding in findings if finding.target != "dynamo"] == []
    assert len(hunt.findings) + len(hunt.unconfirmed) == len(findings)
    assert (hunt.reducing, hunt.confirming) == (0, 0)


def test_a_mistake_of_ours_is_told(monkeypatch):
    def fails(program: PythonProgram, target: str) -> None:
        raise InternalError("the watch failed")

    monkeypatch.setattr(python_hunt, "examine_python", fails)
    judged = judge_programs(3, range(2), "identity", past_known=False)
    assert judged.outcomes == {"mistakes": 2}
    assert judged.mistakes == ["program 0: the watch failed", "program 1: the watch failed"]
