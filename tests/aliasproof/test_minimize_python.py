"""`minimize` of a finding of `hunt`: its program gets smaller, and its cause stays."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aliasproof.campaigns.store.run_folder import read_finding, write_finding
from aliasproof.ir.errors import InternalError
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import Symptom
from aliasproof.minimization.candidate_checks import TargetCheck
from aliasproof.minimization.minimize_python import KeptPython
from aliasproof.processes.isolation import Limits
from aliasproof.processes.outcome import Death, Raised, Returned
from tests.campaigns.made_findings import finding_of
from tests.wrong_python import WRONG

LARGER = WRONG.replace("    x.expand", "    y = x * 2\n    z = y.sum()\n    x.expand")
FINDING = finding_of(PythonProgram(LARGER), "aot-eager", "values", "wrong value", "base")


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
    said = call("minimize", "finding", "--json", "--output", "finding/finding.json").json()
    assert said["kept"] == {"target": "aot-eager", "oracle": "values", "kind": "wrong value"}
    assert said["lines"]["after"] < said["lines"]["before"]
    assert said["signature"] == "known-expand-inverse"
    assert read_finding(stored).source.strip() == said["source"].strip()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--oracle", "values"), "keeps its cause"),
        (("--target", "inductor"), "is of the target aot-eager, and not of inductor"),
        (("--output", "x.txt"), "give a name that ends in .py or .json"),
    ],
)
def test_what_does_not_fit_is_told(call, stored: Path, options: tuple[str, ...], says: str):
    assert says in call("minimize", "finding", *options).refusal


def test_a_finding_that_does_not_show_is_told(call, tmp_path: Path):
    right = PythonProgram(WRONG.replace(".expand(3, 4)", ""))
    write_finding(tmp_path / "right", replace(FINDING, program=right))
    done = call("minimize", "right")
    assert done.code == 2
    assert "nothing to reduce: aot-eager does not show 'values: wrong value'" in done.err


def test_what_ends_a_process_or_is_our_mistake_is_not_interesting(monkeypatch):
    kept = KeptPython(Symptom("aot-eager", "values", "wrong value"))
    check = TargetCheck(kept, ("operator:abs", 1), Limits(60.0, 2**30))
    answers = [Returned(1), Death("hangs", ""), Raised(InternalError("ours")), Returned(1)]
    monkeypatch.setattr(TargetCheck, "_await_outcome", lambda *given: answers.pop(0))
    with check.at_work(1):
        # After a death, the new process calls the preparation first.
        assert check(FINDING.program) == 0
        answers.insert(0, Returned(1))
        assert [check(FINDING.program) for _ in range(2)] == [0, 1]
    assert check.mistakes == 1


def test_answers_are_kept_and_each_candidate_is_repeated(call, tmp_path: Path):
    write_finding(tmp_path / "short", replace(FINDING, program=PythonProgram(WRONG)))
    command = ("minimize", "short", "--repeat", 2, "--resume", "answers", "--json")
    first = call(*command)
    assert first.code == 0, first.err
    answers = (tmp_path / "answers").read_text()
    again = call(*command)
    assert (tmp_path / "answers").read_text() == answers
    outcomes = [json.loads(done.out) for done in (first, again)]
    assert outcomes[0]["source"] == outcomes[1]["source"]
    # Several candidates are checked at a time, so some grades are of candidates after a success.
    assert 0 < outcomes[0]["candidates tried"] <= len(answers.splitlines()) - 1
    assert sum(it["accepted"] for it in outcomes[0]["steps"].values()) == outcomes[0]["accepted"]


# --- a user's file --------------------------------------------------------------------------------


TRAINED = """
import torch
from torch import nn

class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift_of_all = nn.Parameter(torch.ones(4))

    def forward(self, x, view):
        x += self.shift_of_all
        return view.sin()

program = Shifted()

def inputs():
    x = torch.arange(4.0)
    return x, x.view(4)
"""


def test_what_only_a_call_with_gradients_shows_is_reduced_as_it_is_written(call, tmp_path: Path):
    (tmp_path / "trained.py").write_text(TRAINED)
    done = call("minimize", "trained.py", "--target", "aot-eager", "--finding", "found")
    assert done.code == 0, done.err
    assert "reduced as it is written" in done.err
    assert "(known: alias_read_after_recorded_write)" in done.err
    assert "sin" not in done.out
    assert {it.name for it in (tmp_path / "found").iterdir()} == {
        "finding.json",
        "issue.md",
        "reproducer.py",
    }
    assert "in a function of a user" in (tmp_path / "found" / "issue.md").read_text()


def test_a_target_that_is_no_backend_is_shown_through_one_that_has_its_layers(call, write_program):
    raising = "a, b = x.split(2)\nwith torch.no_grad():\n    a.mul_(2)\nreturn b"
    file = write_program(raising, "torch.arange(4.0).requires_grad_()")
    done = call("minimize", file, "--target", "aot")
    assert done.code == 0, done.err
    assert "target aot-eager, in 12 lines" in done.err


def test_a_file_that_imports_more_than_torch_is_refused(call, tmp_path: Path):
    (tmp_path / "trained.py").write_text(f"import string\n{TRAINED}\nDIGITS = string.digits\n")
    refusal = call("minimize", "trained.py", "--target", "aot-eager").refusal
    assert "only ['collections', 'copy', 'dataclasses'" in refusal
