"""`minimize` of a finding of `hunt`: its program gets smaller, its cause stays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aliasproof.campaigns.store.finding import PythonFinding
from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.ir.errors import InternalError
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.python_trial import Cause, FailsAlike
from aliasproof.minimization import minimize_python
from aliasproof.processes.isolation import Limits
from aliasproof.processes.outcome import Death, Raised, Returned
from tests.wrong_python import WRONG

LARGER = WRONG.replace("    x.expand", "    y = x * 2\n    z = y.sum()\n    x.expand")
FINDING = PythonFinding(PythonProgram(LARGER), "aot-eager", "values", "wrong value", "base")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    write_finding(tmp_path / "finding", FINDING)
    return tmp_path / "finding"


def test_a_finding_is_reduced_again(call, stored: Path, tmp_path: Path):
    done = call("minimize", "finding", "--output", "smaller.py")
    assert done.code == 0, done.err
    assert "keeps values: wrong value, target aot-eager" in done.err
    assert "lines," in done.err
    assert done.err.rstrip().endswith("; known-expand-inverse (known: expand-inverse)")
    assert "expand" in done.out
    assert "sum" not in done.out
    assert (tmp_path / "smaller.py").read_text().strip() == done.out.strip()


def test_the_outcome_is_one_object_and_a_finding_again(call, stored: Path, tmp_path: Path):
    done = call("minimize", "finding", "--json", "--output", "finding/finding.json")
    said = json.loads(done.out)
    assert said["kept"] == {"target": "aot-eager", "oracle": "values", "kind": "wrong value"}
    assert said["lines"]["after"] < said["lines"]["before"]
    assert said["signature"] == "known-expand-inverse"
    assert PythonFinding.load(stored).program.source == said["source"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--oracle", "values"), "keeps its cause"),
        (("--target", "inductor"), "is of the target aot-eager, and not of inductor"),
        (("--output", "x.txt"), "give a name that ends in .py or .json"),
    ],
)
def test_what_does_not_fit_is_told(call, stored: Path, options: tuple[str, ...], says: str):
    done = call("minimize", "finding", *options)
    assert done.code == 2
    assert says in done.err


def test_a_finding_that_does_not_show_is_told(call, tmp_path: Path):
    right = PythonProgram(WRONG.replace(".expand(3, 4)", ""))
    write_finding(tmp_path / "right", replace(FINDING, program=right))
    done = call("minimize", "right")
    assert done.code == 2
    assert "nothing to reduce: aot-eager does not show 'values: wrong value'" in done.err


def test_what_ends_a_process_or_is_our_mistake_is_not_interesting(monkeypatch):
    fails = FailsAlike(Cause("aot-eager", "values", "wrong value"))
    candidates = minimize_python.Candidates(fails, Limits(1.0, 2**30))
    answers = [Death("hangs", ""), Raised(InternalError("ours")), Returned((True, fails))]
    monkeypatch.setattr(candidates.__class__, "call", lambda *given: answers.pop(0))
    assert [candidates(FINDING.program) for _ in range(3)] == [False, False, True]
    assert (candidates.tried, candidates.accepted, candidates.mistakes) == (3, 1, 1)
