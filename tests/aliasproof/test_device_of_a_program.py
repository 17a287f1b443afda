"""Commands on a program for a device that this machine lacks: an error, unless none is needed."""

import json

import pytest

from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.devices import on_device
from aliasproof.ir.serialization import dumps
from tests.campaigns.made_findings import finding_of

PROGRAM = on_device(known_bugs()["expand-inverse"].program, "cuda:99")
WHAT = ("aot", "values", "wrong value", "output 0")
FINDING = finding_of(PROGRAM, *WHAT, identifier="aot-values-00000000")


@pytest.fixture
def finding(tmp_path):
    folder = tmp_path / "runs" / "one" / "findings" / "aot-values-00000000"
    folder.mkdir(parents=True)
    (folder / "program.json").write_text(dumps(PROGRAM))
    (folder / "finding.json").write_text(json.dumps(FINDING.to_json()))
    return folder


def test_show_does_not_run_it_and_says_why(call, finding):
    outcome = call("show", finding)
    assert outcome.code == 0
    assert "Not run again: device 'cuda:99'" in " ".join(outcome.out.split())
    assert "def program" in outcome.out
    assert call("show", finding, "--json").json()["status"] == "not run"


@pytest.mark.parametrize("command", ["check", "minimize"])
def test_what_must_run_it_ends_in_one_line(call, finding, command):
    assert "device 'cuda:99'" in call(command, finding).refusal


def test_it_can_be_checked_on_another_device(call, finding):
    outcome = call("check", finding, "--device", "cpu", "--target", "aot")
    assert outcome.code == 1
    assert "wrong value" in outcome.out


@pytest.mark.parametrize("command", ["explain", "prove"])
def test_what_needs_no_device_takes_the_cpu(call, finding, command):
    assert call(command, finding).code in (0, 1)
