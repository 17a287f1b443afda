"""Reproducers run under each given torch; a fixed bug that shows again is an error."""

import json
import shutil
from dataclasses import replace

import pytest

from aliasproof.campaigns.publish.confirmation import confirm
from aliasproof.campaigns.publish.replaying import known_reproducer
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.campaigns.store.run_lock import FINDINGS, RunLock
from aliasproof.campaigns.store.store import Store
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import FOLDER
from aliasproof.plugins import plugins
from tests.campaigns.test_confirmations import REDUCED
from tests.campaigns.test_merging import run

OF_TORCH = {name for name, bug in known_bugs().items() if bug.layer not in plugins()}
SHOWN_HERE = {name for name in OF_TORCH if known_bugs()[name].shows_here}


@pytest.fixture
def stored(tmp_path):
    """A run with two findings."""
    folder, finding = tmp_path / "run", REDUCED
    run(folder, replace(finding, identifier="one"), 1, confirmed=True)
    store = Store.open(folder)
    store.keep_finding(replace(finding, identifier="two"), "pass\n", "reproduced")
    store.close()
    for name in ("one", "two"):
        RunFolder(folder).write(FINDINGS, replace(finding, identifier=name), "", None)
    return folder


@pytest.fixture
def torch_of(tmp_path):
    """An interpreter of that name, and the outcome of each script under it."""

    def make(version, ending):
        path = tmp_path / version
        path.write_text(f'#!/bin/sh\n[ "$2" = -c ] && echo {version} && exit 0\n{ending}\n')
        path.chmod(0o755)
        return path

    return make


def replayed(done):
    return {(e["finding"], e["torch"]): e["status"] for e in json.loads(done.out)["replayed"]}


def test_each_finding_in_each_torch(call, stored, torch_of):
    pythons = [
        torch_of("2.13", "echo 'BUG: there'; exit 1"),
        torch_of("2.14", "echo 'Traceback'; exit 1"),
        torch_of("2.15", "exit 0"),
    ]
    options = [option for python in pythons for option in ("--torch", python)]
    done = call("replay", "run", *options, "--json")
    assert done.code == 0, done.err
    words = {"2.13": "still failing", "2.14": "changed", "2.15": "fixed"}
    assert replayed(done) == {(name, v): w for name in ("one", "two") for v, w in words.items()}
    assert "torch 2.14" in call("replay", "run", *options).out
    # The outcome of replays is stored, and the newest torch decides.
    said = call("triage", "run", "--json").json()["findings"]
    assert [(e["state"], e["note"]) for e in said] == [("fixed", "gone in torch 2.15")] * 2
    assert call("replay", "run", *options).code == 0, "it was there before it was fixed"


def test_what_shows_in_a_newer_torch_than_the_one_that_fixed_it_has_regressed(
    call, stored, torch_of
):
    call("replay", "run", "--torch", torch_of("2.15.0+cpu", "exit 0"))
    later = torch_of("2.16.1", "echo 'BUG: there'; exit 1")
    done = call("replay", "run", "--torch", later, "--json")
    assert (done.code, set(replayed(done).values())) == (1, {"regressed"})
    assert "shows again in torch 2.16.1" in call("triage", "run").out.replace("\n", " ")
    call("triage", "run", "one", "--state", "documented")
    said = {e["finding"]: e["state"] for e in call("triage", "run", "--json").json()["findings"]}
    assert said == {"one": "documented", "two": "regressed"}, "a person says it last"


def test_a_fixed_bug_that_shows_again_has_regressed(call, stored, torch_of):
    assert call("triage", "run", "one", "--state", "fixed", "--link", "https://x").code == 0
    done = call("replay", "run", "--torch", torch_of("2.16", "echo 'BUG: there'; exit 1"), "--json")
    assert done.code == 1
    assert replayed(done) == {("one", "2.16"): "regressed", ("two", "2.16"): "still failing"}


def test_known_bugs_that_show_where_they_were_fixed_have_regressed(call, torch_of):
    shows = "echo 'BUG: there'; exit 1"
    pythons = [torch_of("2.13.1", shows), torch_of("2.16.0.dev1", shows)]
    done = call(
        "replay", "--json", *(option for python in pythons for option in ("--torch", python))
    )
    assert done.code == 1, done.err
    fixed = {
        bug.identifier
        for name, bug in known_bugs().items()
        if name in SHOWN_HERE and "2.15" not in bug.versions
    }
    assert 0 < len(fixed) < len(SHOWN_HERE)
    words = replayed(done)
    for name in SHOWN_HERE:
        assert words[name, "2.13.1"] == "still failing"
        assert words[name, "2.16.0.dev1"] == ("regressed" if name in fixed else "still failing")


def test_known_bugs_that_are_gone_are_fixed(call, torch_of):
    python = torch_of("2.13.0", "exit 0")
    done = call("replay", FOLDER, "--torch", python)
    assert done.code == 0, done.err
    assert f"torch 2.13.0: {len(SHOWN_HERE)} fixed" in done.out


def test_the_reproducer_of_a_known_bug_shows_it(tmp_path):
    # Bugs of other compilers need these, and cannot be replayed under several versions of torch.
    assert {name for name, bug in known_bugs().items() if bug.shown} == OF_TORCH
    bug, script = known_bugs()["expand-inverse"], tmp_path / "reproducer.py"
    assert bug.shown
    script.write_text(known_reproducer(bug, bug.shown))
    assert confirm(script).shown


def test_a_folder_of_findings_is_replayed(call, stored, torch_of, tmp_path):
    python = torch_of("2.13", "exit 0")
    for folder, names in (("run/findings", {"one", "two"}), ("run/findings/one", {"one"})):
        done = call("replay", folder, "--torch", python, "--json")
        assert replayed(done) == {(name, "2.13"): "fixed" for name in names}
    shutil.rmtree(tmp_path / "run/findings")
    assert "no findings" in call("replay", "run", "--torch", python).out


def test_the_reproducer_in_a_folder_is_not_run(call, stored, torch_of):
    (stored / "findings" / "one" / "reproducer.py").write_text("harm = 1\n")
    python = torch_of("2.13", "grep -q harm $2 && echo 'BUG: harm' && exit 1; exit 0")
    done = call("replay", "run/findings/one", "--torch", python, "--json")
    assert replayed(done) == {("one", "2.13"): "fixed"}


def test_the_literal_reproducer_counts_where_the_other_does_not_show_it(call, stored, torch_of):
    python = torch_of("2.13", "grep -q torch.no_grad $2 && echo 'BUG: there' && exit 1; exit 0")
    assert set(replayed(call("replay", "run", "--torch", python, "--json")).values()) == {
        "still failing"
    }


def test_code_that_a_file_names_is_run_only_if_the_user_names_it(call, stored, torch_of, tmp_path):
    (tmp_path / "replayed_pass.py").write_text("def wrong(gm):\n    return gm\n")
    file = stored / "findings" / "one" / "finding.json"
    named = json.loads(file.read_text()) | {"target": "replayed_pass.py:wrong"}
    file.write_text(json.dumps(named))
    python = torch_of("2.13", "echo 'BUG: there'; exit 1")
    done = call("replay", "run", "--torch", python, "--json")
    assert replayed(done) == {("one", "2.13"): "not run", ("two", "2.13"): "still failing"}
    assert "give --target replayed_pass.py:wrong" in done.err.replace("\n", " ")
    done = call("replay", "run", "--torch", python, "--target", "replayed_pass.py:wrong", "--json")
    assert set(replayed(done).values()) == {"still failing"}


def test_bad_input_is_one_line(call, stored, torch_of, tmp_path):
    for arguments, part in (
        (["replay", "nowhere"], "'nowhere' does not exist"),
        (
            ["replay", "run", "--torch", "/bin/false"],
            "give an interpreter of Python that has torch",
        ),
        (["replay", "run", "--torch", "/nowhere"], "--torch /nowhere cannot be run"),
        (["triage", "run", "one"], "give a finding and --state"),
        (["triage", "run", "one", "--state", "fixt"], "did you mean 'fixed'?"),
    ):
        assert part in call(*arguments).refusal
    lock = RunLock.take(stored)
    assert "is in use by pid" in call("triage", "run").err
    lock.release()
    listed = call("triage", "run", "--json").json()["findings"]
    assert [(each["finding"], each["state"], each["times"]) for each in listed] == [
        ("one", "reproduced", 1),
        ("two", "reproduced", 0),
    ]
