"""The plugin in a scratch project, and the outcomes that decide its tests."""

import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import _prepareconfig

from aliasproof.pytest import plugin
from aliasproof.pytest.shards import KNOWN, ShardOutcome, ShardPlan, ShardTest, shard_tests
from tests.aliasproof.planted_targets import DROPS_WRITES
from tests.subprocesses import python, ran

# A pass that kills its process at a write to an input.
SEGFAULTS = """
import os

def segfaults(graph_module):
    for node in graph_module.graph.nodes:
        if node.target is torch.ops.aten.copy_.default:
            os.kill(os.getpid(), 11)
"""
PLUGIN = ("-p", "aliasproof.pytest.plugin")


def pytest_in(
    folder: Path, *arguments: str, plugins: tuple[str, ...] = PLUGIN
) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder with the plugin, installed or not."""
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = ("-P", "-m", "pytest", "-p", "no:cacheprovider", *plugins, *arguments)
    return python(*command, cwd=folder, **variables)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "passes.py").write_text(DROPS_WRITES + SEGFAULTS)
    return tmp_path


@pytest.mark.timeout(900)  # it starts a dozen processes that import torch
def test_a_wrong_pass_and_one_that_ends_its_process_fail_alone_and_are_reproduced(project):
    (project / "test_own.py").write_text("def test_own(): pass\n")
    names = ("drops_writes", "segfaults")
    targets = [each for name in names for each in ("--aliasproof-target", f"passes.py:{name}")]
    numbers = ("--aliasproof-programs", "5", "--aliasproof-seed", "3")
    more = ("-n", "2", "--junitxml=junit.xml", "--aliasproof-run=kept")
    done = pytest_in(project, *targets, *numbers, *more, plugins=(*PLUGIN, "-p", "xdist.plugin"))
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    wrong, dead = (_case(project / "junit.xml", name) for name in names)
    # The reduced program, and the command that finds it again.
    message = _message(wrong)
    assert "inputs: input ends wrong" in message
    assert "def program(x):" in message
    properties = _properties(wrong)
    assert (properties["aliasproof_seed"], properties["aliasproof_shard"]) == ("3", "1/1")
    assert properties["aliasproof_programs"] == "5"
    changed, unchanged = (
        int(properties[f"aliasproof_{name}"]) for name in ("changed", "unchanged")
    )
    assert changed
    what = f"it changed a graph in {changed} of {changed + unchanged} compilations"
    assert f"passes.py:drops_writes: 5 programs; {what}" in done.stdout
    (signature,) = properties["aliasproof_signatures"].split()
    (folder,) = project.glob(f"kept/*/findings/{signature}")
    assert shlex.join([sys.executable, str(folder / "reproducer.py")]) in message
    assert "dies of signal 11" in _message(dead)
    command = re.search(r"To run this shard again:\n +(.*)", message)
    assert command is not None
    again = ran("bash", "-c", command[1], cwd=project)
    assert again.returncode == 1, again.stderr
    assert signature in again.stdout


def _case(file: Path, name: str) -> ET.Element:
    cases = ET.parse(file).getroot().iter("testcase")  # noqa: S314 - pytest wrote it
    return next(case for case in cases if f":{name}[" in case.get("name", ""))


def _message(case: ET.Element) -> str:
    failure = case.find("failure")
    assert failure is not None
    return failure.text or ""


def _properties(case: ET.Element) -> dict[str, str]:
    return {each.get("name", ""): each.get("value", "") for each in case.iter("property")}


def test_identifiers_are_stable_and_options_may_be_in_an_ini_file(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\naliasproof_programs = 75\naliasproof_shards=3\n")
    (project / "test_own.py").write_text("def test_own(): pass\n")
    listed = pytest_in(project, "--aliasproof-target", "aot", "--collect-only", "-q")
    shards = [f"aliasproof::aot[shard-{number}-of-3]" for number in (1, 2, 3)]
    names = [line for line in listed.stdout.splitlines() if "::" in line]
    assert names == ["test_own.py::test_own", *shards]
    # The command line wins, and the tests can be chosen.
    options = ("--aliasproof-target", "aot", "--aliasproof-shards", "1")
    own = pytest_in(project, *options, "-m", "not aliasproof", "-q")
    assert "1 passed, 1 deselected" in own.stdout


def test_properties_of_other_tests_are_not_ours(project: Path) -> None:
    body = 'def test_own(record_property): record_property("target", "x")\n'
    (project / "test_own.py").write_text(body)
    done = pytest_in(project)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout
    assert "aliasproof" not in done.stdout


def test_a_project_that_does_not_use_it_is_not_disturbed(project: Path) -> None:
    (project / "test_own.py").write_text(
        "import sys\n\ndef test_light():\n"
        "    ours = {'torch', 'aliasproof.targets', 'aliasproof.ir', 'hypothesis'}\n"
        "    assert not ours & {*sys.modules}\n"
    )
    done = pytest_in(project, "-q", "-W", "error", "--strict-config", "--strict-markers")
    assert "1 passed" in done.stdout, done.stdout


def test_a_project_may_have_packages_named_as_rooms_of_ours(project: Path) -> None:
    names = ("targets", "reports", "programs", "generators", "oracles", "reference_pass")
    for name in names:
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("MINE = 1\n")
    lines = [f"from {name} import MINE" for name in names]
    lines += ["from aliasproof import check", "def test_own(): assert MINE and check"]
    (project / "test_own.py").write_text("\n".join(lines) + "\n")
    options = ("--aliasproof-target=identity", "--aliasproof-programs=1")
    done = pytest_in(project, "-o", "pythonpath=.", *options)
    assert "2 passed" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("programs=0", "programs 0: give"),
        ("programs=many", "programs many: give"),
        ("seed=-1", "seed -1: give"),
        ("timeout=nan", "timeout nan: give"),
        ("known=no", "known no: give"),
        ("target=aott", r"target: .*unknown target 'aott'; did you mean 'aot'\?"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(project, monkeypatch, option, said):
    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    options = ("--aliasproof-target=aot", f"--aliasproof-{option}")
    config = _prepareconfig([*PLUGIN, *options])
    with pytest.raises(pytest.UsageError, match=f"--aliasproof-{said}"):
        plugin.pytest_configure(config)


def test_a_shard_that_takes_too_long_is_ended_and_fails(project: Path) -> None:
    more = ("--aliasproof-programs", "100000", "--aliasproof-shards", "1")
    done = pytest_in(project, "--aliasproof-target", "identity", "--aliasproof-timeout", "1", *more)
    assert "It was ended after 1 seconds" in done.stdout
    assert "1 failed" in done.stdout


# --- outcomes -------------------------------------------------------------------------------------


BUG = {"identifier": "expand", "title": "A title", "link": "https://x/1", "violations": 3}


def plan(known: str = "name", programs: int = 600, paths: tuple[str, ...] = ()) -> ShardPlan:
    shards = ShardPlan.shards_for(programs, None)
    return ShardPlan(programs, shards, 7, 60.0, None, known, paths)


def finding(known: str | None = None) -> dict[str, Any]:
    said = {"oracle": "values", "kind": "wrong value", "place": "output 0", "count": 2}
    return {**said, "identifier": "aot-values-1", "known": known, "folder": "nowhere"}


def outcome(
    *findings: dict[str, Any], known: str = "name", discarded: int = 0, **more: Any
) -> ShardOutcome:
    campaign = {
        "programs": {"aot": {"programs": 5, "discarded": discarded}},
        "findings": list(findings),
        "known bugs": [BUG] if any(each["known"] for each in findings) else [],
        "mistakes of aliasproof": more.pop("mistakes", []),
    }
    fields = {"status": 0, "late": False, "campaign": campaign, "errors": "", **more}
    return ShardOutcome(ShardTest(plan(known), "aot", 1), **fields)


def test_a_shard_without_findings_passes() -> None:
    assert outcome().failure() is None


def test_a_finding_fails() -> None:
    failure = outcome(finding()).failure()
    assert failure is not None
    assert "values: wrong value (output 0), aot-values-1, in 2 programs" in failure
    assert "fuzz --target aot --programs 600 --seed 7 --shard 1/3 --workers 1" in failure


@pytest.mark.parametrize("known", KNOWN)
def test_a_known_bug_is_named_and_fails_only_if_asked(known: str) -> None:
    found = outcome(finding(known="expand"), known=known)
    assert (found.failure() is not None) == (known == "fail")
    named = dict(found.properties())["aliasproof_known_bug"]
    assert named == "expand: A title (3 times), https://x/1"
    assert ("--past-known" in found.test.options) == (known == "patch")


@pytest.mark.parametrize(
    ("more", "printed"),
    [
        ({"campaign": None, "status": -9}, "died of signal 9"),
        ({"campaign": None, "status": 2, "errors": "a\naliasproof: no such"}, "exits 2: alias"),
        ({"late": True}, "ended after 60 seconds"),
        ({"mistakes": ["shard 3: KeyError"]}, "report it: shard 3: KeyError"),
        ({"discarded": 5}, "Nothing was tested"),
    ],
)
def test_what_is_no_answer_is_no_pass(more: dict[str, Any], printed: str) -> None:
    failure = outcome(**more).failure()
    assert failure is not None
    assert printed in failure


def test_programs_are_shared_without_rest() -> None:
    assert ShardPlan.shards_for(1, None) == 1
    assert ShardPlan.shards_for(26, 9) == 2  # each test has programs
    assert ShardPlan.shards_for(1000, None) == 5
    tests = list(shard_tests(["aot", "b.py:f", "aot"], plan(programs=400)))
    names = ["aot[shard-1-of-2]", "b.py:f[shard-1-of-2]", "aot[shard-2-of-2]"]
    assert [test.name for test in tests][:3] == names
    assert len({test.folder_name for test in tests}) == len(tests)
    assert all("/" not in test.folder_name for test in tests)


def test_the_path_of_the_project_is_part_of_the_command(tmp_path: Path) -> None:
    test = ShardTest(plan(paths=(str(tmp_path / "a b"),)), "aot", 1)
    assert test.shown_command().startswith(f"PYTHONPATH='{tmp_path}/a b' ")
    assert test.environment()["PYTHONPATH"].startswith(f"{tmp_path}/a b")
