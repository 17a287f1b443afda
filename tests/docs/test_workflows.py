"""The workflows for GitHub: their steps run, in order, in an empty clone, with small numbers."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.test_confirmations import REDUCED
from tests.campaigns.test_merging import run

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
# Steps that need a network, or all known bugs (`tests/aliasproof/test_replay.py` runs these).
LEFT_OUT = {"Install", "Replay the known bugs"}


def workflow(name: str) -> Any:
    return yaml.safe_load((WORKFLOWS / name).read_text())


class Runner:
    """Runs jobs as GitHub does, as far as the workflows need: steps, artefacts and a cache."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.artefacts, self.cache = folder, folder / "artefacts", folder / "cache"
        self.artefacts.mkdir()
        commands = folder / "bin"
        commands.mkdir()
        (commands / "aliasproof").write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m aliasproof "$@"\n'
        )
        (commands / "date").write_text("#!/bin/sh\necho 20261123\n")
        for command in commands.iterdir():
            command.chmod(0o755)
        self.path = f"{commands}{os.pathsep}{os.environ['PATH']}"

    def job(self, job: Any, matrix: dict[str, object], environment: dict[str, str]) -> bool:
        """Run a job in a clone of its own. Returns whether it succeeds."""
        name = "-".join(map(str, matrix.values()))
        clone = self.folder / f"clone-{len(list(self.folder.iterdir()))}-{name}"
        clone.mkdir()
        self.summary = clone / "summary of the step"
        own = {key: filled(text, matrix) for key, text in job.get("env", {}).items()}
        variables = {**os.environ, **own, **environment, "PATH": self.path}
        variables["GITHUB_STEP_SUMMARY"] = str(self.summary)
        succeeds = True
        for step in job["steps"]:
            if step.get("name") in LEFT_OUT or not (succeeds or step.get("if") == "always()"):
                continue
            if "uses" in step:
                given = {k: filled(v, matrix) for k, v in step.get("with", {}).items()}
                self.action(step["uses"].split("@")[0], given, clone)
            else:
                command = ["bash", "-eo", "pipefail", "-c", filled(step["run"], matrix)]
                done = subprocess.run(
                    command, cwd=clone, env=variables, check=False, capture_output=True, text=True
                )
                print(step["run"], done.stdout, done.stderr, sep="\n")
                succeeds = succeeds and done.returncode == 0
        return succeeds

    def action(self, name: str, given: dict[str, str], clone: Path) -> None:
        """Do with files what an action of GitHub does."""
        if name == "actions/upload-artifact":
            # A single path is the root of the artefact; of several paths, their parent is.
            paths = given["path"].split()
            for path in paths:
                here = self.artefacts / given["name"] / ("" if len(paths) == 1 else path)
                copy(clone / path, here)
        elif name == "actions/download-artifact":
            for found in self.artefacts.glob(given["pattern"]):
                copy(found, clone / given["path"] / found.name)
        elif name == "actions/cache/save":
            copy(clone / given["path"], self.cache)
        elif name == "actions/cache/restore":
            if self.cache.exists():
                copy(self.cache, clone / given["path"])
        else:
            assert name in {"actions/checkout", "actions/setup-python"}


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def filled(text: object, matrix: dict[str, object]) -> str:
    """The text in which the matrix replaces each `${{ matrix.NAME }}`."""
    known = {f"matrix.{name}": str(value) for name, value in matrix.items()}
    known["github.run_id"] = "1"
    return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: known[found[1]], str(text))


def test_a_night_is_fuzzed_merged_and_reported_and_a_finding_fails_one_night(tmp_path):
    jobs, runner = workflow("nightly.yml")["jobs"], Runner(tmp_path)
    small = {"SHARDS": "1", "LIMIT": "--programs 2", "TARGETS": "--target identity"}
    small["AGAIN"] = "--seconds 0"
    assert runner.job(jobs["fuzz"], {"torch": "2.13.0", "shard": 1}, small)
    assert (runner.artefacts / "run-2.13.0-1" / "store.sqlite").is_file()
    # Another shard, which found something.
    found = replace(REDUCED, identifier="a-finding")
    run(runner.artefacts / "run-2.13.0-2", found, 1, confirmed=True)
    assert not runner.job(jobs["report"], {"torch": "2.13.0"}, small), "there is a new finding"
    summary = runner.summary.read_text()
    assert summary.startswith("## 1 new finding, torch 2.")
    assert "### `a-finding`: " in summary
    report = runner.artefacts / "report-2.13.0"
    assert "<html" in (report / "report" / "report.html").read_text()
    assert 'name="a-finding"' in (report / "report" / "junit.xml").read_text()
    assert (report / "nights" / "findings" / "a-finding" / "reproducer.py").is_file()
    # The second night has the same finding: none is new, and none is reported as fixed.
    assert runner.job(jobs["report"], {"torch": "2.13.0"}, small)
    assert runner.summary.read_text().startswith("## 0 new findings, torch 2.")


def test_the_matrix_and_the_shards_agree() -> None:
    nightly = workflow("nightly.yml")
    fuzz, report = nightly["jobs"]["fuzz"], nightly["jobs"]["report"]
    assert fuzz["strategy"]["matrix"]["shard"] == [*range(1, nightly["env"]["SHARDS"] + 1)]
    assert fuzz["strategy"]["matrix"]["torch"] == report["strategy"]["matrix"]["torch"]
    seconds = int(nightly["env"]["LIMIT"].removeprefix("--seconds "))
    assert seconds < 60 * fuzz["timeout-minutes"]


def test_ci_runs_the_script_of_the_repository() -> None:
    [job] = workflow("ci.yml")["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == ["bash .ci/run"]
    assert (ROOT / ".ci" / "run").is_file()


GATE = """\
from aliasproof.__main__ import main
from aliasproof.campaigns.run import gate
from aliasproof.corpus.bug_files import known_bugs

if __name__ == "__main__":
    few = [gate.Entry("inductor-fx", known_bugs()["copy-of-written-input"].program)]
    gate.corpus = lambda: few
    main()
"""
BACKEND = """\
def mine(graph_module, example_inputs):
    return lambda *given: graph_module.forward(*(it.clone() for it in given))
"""


def test_the_gate_fails_a_pull_request_and_annotates_it(tmp_path: Path, capsys: Any) -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    assert {"uses": "./"} in workflow("gate.yml")["jobs"]["gate"]["steps"]
    runner, mine, baseline = Runner(tmp_path), tmp_path / "mine.py", tmp_path / "gate.json"
    (tmp_path / "few.py").write_text(GATE)
    (tmp_path / "bin" / "aliasproof").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {tmp_path}/few.py "$@"\n'
    )
    mine.write_text(BACKEND)
    given = {"TARGET": f"{mine}:mine", "BASELINE": str(baseline)}
    # The baseline is made on a machine of the user. What it has is not new; here it has nothing.
    assert not runner.job({"steps": steps}, {}, {**given, "CI": "true"})
    assert runner.job({"steps": steps}, {}, {**given, "CI": ""})
    before = json.loads(baseline.read_text())
    assert before["shown"]
    baseline.write_text(json.dumps({**before, "shown": {}}))
    capsys.readouterr()
    assert not runner.job({"steps": steps}, {}, {**given, "CI": "true"})
    assert "::error title=aliasproof::inputs: input ends wrong" in capsys.readouterr().out


def test_the_documented_job_fuzzes_the_pass_of_its_gate() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    gate, fuzz = yaml.safe_load(block)
    command = f"aliasproof fuzz --target {gate['with']['target']} --programs 500 --fail-on-findings"
    assert fuzz == {"run": command}
    assert f"# run: {command}" in (WORKFLOWS / "gate.yml").read_text()


def test_a_release_is_built_tested_and_only_then_published() -> None:
    jobs = workflow("release.yml")["jobs"]
    assert (jobs["test"]["needs"], jobs["publish"]["needs"]) == ("build", "test")
    tested = jobs["test"]["strategy"]["matrix"]["torch"]
    assert tested == workflow("nightly.yml")["jobs"]["fuzz"]["strategy"]["matrix"]["torch"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    # An upper bound would let pip replace a newer torch, such as a nightly.
    [torch] = [name for name in project["dependencies"] if name.startswith("torch")]
    assert "<" not in torch
