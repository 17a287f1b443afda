"""`aliasproof show`: the report on a finding, and whether it still fails."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import aliasproof.findings.showing
from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.publish.confirmation import Confirmation
from aliasproof.campaigns.publish.reproducer import render
from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.registry import TARGETS
from tests.campaigns.made_findings import finding_of
from tests.short_programs import program_of, view

PROGRAM = program_of("aten.add_.Scalar(x0, 1)\nreturn (x0,)", view(2))
FINDING = finding_of(
    PROGRAM,
    *("forgetful", "inputs", "input ends wrong", "input 0"),
    {"first wrong index": [0], "eager": "2.0", "target": "1.0"},
    identifier="forgetful-inputs-12345678",
    seed=3,
    count=2,
)


@pytest.fixture
def keep(tmp_path, forgetful_target):
    """Stores a finding where a campaign would."""

    def keep_finding(finding: Finding):
        folder = tmp_path / "runs" / "some-run" / "findings" / finding.identifier
        write_finding(folder, finding)
        violation = Violation(finding.oracle, finding.kind, finding.place, finding.evidence)
        script = render(finding.program, TARGETS[finding.target], violation, exact=True)
        (folder / "reproducer.py").write_text(script)
        return folder

    return keep_finding


def test_everything_is_there(call, keep):
    folder = keep(FINDING)
    outcome = call("show", folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert "forgetful-inputs-12345678" in outcome.out
    assert "silent" in outcome.out
    assert "def program(x0):\n    aten.add_.Scalar(x0, 1)\n" in outcome.out
    assert "def inputs():" in outcome.out
    assert "first wrong index [0], eager 2.0, target 1.0" in outcome.out
    beside = r"^input 0 afterwards .*tensor\(\[2., 3.\]\) +≠ .*tensor\(\[1., 2.\]\)"
    assert re.search(beside, outcome.out, re.MULTILINE)
    assert (folder / "reproducer.py").read_text().strip() in outcome.out
    assert "runs/some-run/findings/forgetful-inputs-12345678/reproducer.py" in outcome.out
    assert outcome.out.strip().endswith(f"Still there in torch {torch.__version__}.")


def test_what_is_known_of_a_finding(call, keep):
    told = replace(
        FINDING,
        cause="write through expand",
        known="expand-inverse",
        latent=True,
        user_level={"aot_eager": "shows", "inductor": "does not show"},
    )
    (keep(told) / "issue.md").write_text("torch.compile is wrong after x.add_(1)\n\n### Bug\n")
    out = call("show", FINDING.identifier).out
    assert "known bug: expand-inverse (a write through expand adds up the copies" in out
    assert "cause: write through expand" in out
    assert "latent: " in out
    assert 'torch.compile(backend="aot_eager"): shows' in out
    assert 'torch.compile(backend="inductor"): does not show' in out
    assert "runs/some-run/findings/forgetful-inputs-12345678/issue.md" in out
    assert "    torch.compile is wrong after x.add_(1)\n" in out


def test_the_graphs_of_the_stages(call, keep):
    keep(replace(FINDING, identifier="aot-inputs-1", target="aot"))
    out = call("show", "aot-inputs-1").out
    assert "graph: inference graph" in out
    assert "torch.ops.aten.add.Scalar" in out


@pytest.mark.parametrize(
    "given",
    ["runs/some-run/findings/aot-inputs-1", "runs/some-run/findings/aot-inputs-1/finding.json"],
)
def test_a_bug_that_is_gone(call, keep, given):
    keep(replace(FINDING, identifier="aot-inputs-1", target="aot"))
    ending = f"Gone in torch {torch.__version__}: target and eager do the same."
    assert call("show", given).out.strip().endswith(ending)


def test_another_violation_than_the_one_found(call, keep):
    keep(replace(FINDING, kind="bytes outside the inputs change"))
    assert "Another violation in torch" in call("show", FINDING.identifier).out


def test_the_newest_of_equal_names(call, keep, tmp_path):
    folder = keep(FINDING)
    newer = tmp_path / "runs" / "a-newer-run" / "findings" / FINDING.identifier
    shutil.copytree(folder, newer)
    assert "runs/a-newer-run/findings" in call("show", FINDING.identifier).out


@pytest.mark.parametrize(
    ("confirmation", "word", "why"),
    [
        (Confirmation(True, "BUG: aot: dies of signal 11", "exits 1"), "Still there", "."),
        (Confirmation(False, "gone", "exits 0"), "Gone", ": the reproducer exits 0."),
    ],
)
def test_a_target_that_died_is_not_run_in_this_process(
    call, keep, monkeypatch, confirmation, word, why
):
    monkeypatch.setattr(aliasproof.findings.showing, "run_text", lambda script: confirmation)
    monkeypatch.setattr(aliasproof.findings.showing, "examine", None)
    what = ("aot", "errors", "dies of signal 11", "call")
    keep(finding_of(PROGRAM, *what, identifier="aot-errors-1"))
    ending = f"{word} in torch {torch.__version__}{why}"
    assert call("show", "aot-errors-1").out.strip().endswith(ending)


def test_without_its_reproducer(call, keep):
    (keep(FINDING) / "reproducer.py").unlink()
    outcome = call("show", FINDING.identifier)
    assert outcome.code == 0
    assert "reproducer.py is missing" in outcome.out


def test_a_target_that_no_longer_exists(call, keep, monkeypatch):
    keep(FINDING)
    monkeypatch.delitem(TARGETS, "forgetful")
    assert "unknown target 'forgetful'" in call("show", FINDING.identifier).refusal


def test_json(call, keep):
    folder = keep(FINDING)
    found = call("show", FINDING.identifier, "--json").json()
    assert found["folder"] == str(folder.relative_to(Path.cwd()))
    assert (found["stored as"], found["status"]) == ("finding", "still there")
    assert found["stored"]["kind"] == FINDING.kind
    assert found["oracles"]["inputs"]["verdict"] == "violated"
    row = {"what": "input 0 afterwards", "eager": "tensor([2., 3.])", "target": "tensor([1., 2.])"}
    assert row in found["eager beside target"]
    assert "aten.add_.Scalar(x0, 1)" in found["program"]


WHAT = ("misnoted", "invariants", "metadata has another size", "graph")
SUSPICIOUS = finding_of(PROGRAM, *WHAT, identifier="misnoted-invariants-1", count=3)


@pytest.fixture
def suspicion(tmp_path, plant):
    """Stores a suspicion about a target whose graph has wrong metadata."""

    def misnoted(function, inputs):
        build = TARGETS["reference"].build(function, inputs)
        (node,) = (node for node in build.stages[-1].graph.graph.nodes if "add" in node.name)
        node.meta["val"] = torch.empty(7)
        return build

    plant("misnoted", misnoted)
    folder = tmp_path / "runs" / "some-run" / "suspicions" / "misnoted-invariants-1"
    write_finding(folder, SUSPICIOUS)
    return folder


def test_a_suspicion(call, suspicion):
    outcome = call("show", "misnoted-invariants-1")
    assert (outcome.code, outcome.err) == (0, "")
    assert "values match, but on 3 programs of the run invariants reports" in outcome.out
    assert "noted [7], in the run [2]" in outcome.out
    assert "graph: reinplaced" in outcome.out
    assert outcome.out.strip().endswith(f"Still there in torch {torch.__version__}.")
    found = call("show", suspicion / "program.json", "--json").json()
    assert (found["stored as"], found["status"]) == ("suspicion", "still there")
    assert found["reproducer"] is None


def test_an_unconfirmed_failure(call, keep):
    folder = keep(FINDING)
    unconfirmed = folder.parents[1] / "unconfirmed" / folder.name
    unconfirmed.parent.mkdir()
    folder.rename(unconfirmed)
    assert "Still there in torch" in call("show", FINDING.identifier).out
