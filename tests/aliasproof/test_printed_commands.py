"""Every command that a command prints works as printed, and so do all that these print."""

import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.fx import symbolic_trace

from aliasproof.campaigns.store.run_folder import show_command, write_finding
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.formats.stored_graph import StoredGraph
from tests.aliasproof.conftest import Outcome
from tests.aliasproof.planted_targets import DROPS_WRITES
from tests.campaigns.made_findings import finding_of
from tests.short_programs import known_bug, python_of

pytestmark = known_bug

# In a line, or between backticks, quotes or parentheses; a script has a line of its own.
PRINTED = re.compile(
    r"(?:^|[\s`'(])(aliasproof (?!in\b)[a-z]+ (?:[^`'()\n]|'[^'\n]*')+)"
    r"|^ +(\S*python\S* \S.*\.py\S*)$",
    re.MULTILINE,
)
# These run a script as Python does, or have worker processes.
SEPARATE = ("run", "fuzz", "hunt")
MISCOMPILED = """
import torch

def step(x):
    x.expand(3, 4).zero_()
    return x + 0

def inputs():
    return torch.arange(4.)
"""
TRAINING = """
import torch

w = torch.ones(3, requires_grad=True)
torch.compile(lambda x: x.neg() * 2)(w).sum().backward()
"""
DOUBLED = """
def doubled(module, inputs):
    def run(*args):
        return tuple(x * 2 if isinstance(x, torch.Tensor) else x for x in module(*args))
    return run
"""


def write_inputs(folder: Path) -> None:
    """A file, the graph of a model, findings and a script: some target gets each one wrong."""
    (folder / "it is mine.py").write_text(MISCOMPILED)
    (folder / "training.py").write_text(TRAINING)
    (folder / "my passes.py").write_text(DROPS_WRITES + DOUBLED)
    graph = symbolic_trace(lambda w: w.sin() * 2)
    inputs = [torch.ones(2, requires_grad=True)]
    StoredGraph(graph, inputs, {"target": "aot"}).write(folder / "graph-0")
    program = known_bugs()["expand-inverse"].program
    what = ("functionalize", "values", "wrong value", "")
    finding = finding_of(program, *what, identifier="found")
    write_finding(folder / "runs" / "run" / "findings" / "found", finding)


def executed(call: Callable[..., Outcome], command: str) -> Outcome:
    """The outcome of a command line."""
    words = shlex.split(command)
    if words[0] == "aliasproof" and words[1] not in SEPARATE:
        return call(*words[1:])
    if words[0] == "aliasproof":
        words = [sys.executable, "-m", *words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=280)
    return Outcome(done.returncode, done.stdout, done.stderr)


def status(command: str) -> int:
    """The exit status that a printed command should have: 1 where it shows a difference."""
    # `check` finds a violation, except in the clean graph.
    wrong = command.startswith("aliasproof check") and "graph-0" not in command
    return int(wrong or not command.startswith("aliasproof"))


def walk(call: Callable[..., Outcome], *first: tuple[str, int]) -> Counter[str]:
    """Execute commands, and all that they print, with these exit statuses; count the latter."""
    waiting, done, printed = list(first), list[str](), Counter[str]()
    while waiting:
        command, expected = waiting.pop(0)
        outcome = executed(call, command)
        assert outcome.code == expected, f"{command}\n{outcome.out[-2000:]}\n{outcome.err}"
        done.append(command)
        for found in PRINTED.findall(outcome.out + outcome.err):
            line = "".join(found).strip()
            if line not in done and line not in [it for it, _ in waiting]:
                waiting.append((line, status(line)))
                words = line.split()
                printed[words[1] if words[0] == "aliasproof" else "python"] += 1
    return printed


def test_printed_commands_work_as_they_are_printed(call, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    printed = walk(
        call,
        ("aliasproof check 'it is mine.py:step' --target aot --in-process", 1),
        ("aliasproof minimize graph-0 --target aot --workers 1", 2),
        ("aliasproof show found", 0),
        ("aliasproof known expand-inverse", 0),
        ("aliasproof bisect found", 0),
        ("aliasproof replay runs/run", 0),
    )
    assert printed.keys() == {"minimize", "check"}


def test_what_run_prints_works(call, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    first = "aliasproof run --target 'my passes.py:doubled' training.py"
    assert walk(call, (first, 0)).keys() >= {"minimize"}


def test_the_command_that_shows_a_finding_of_hunt_names_its_target(call, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    own = "my passes.py:doubled"
    finding = finding_of(python_of("return x + 1"), own, "values", "wrong value", "out1")
    folder = Path("my run") / "findings" / "found"
    write_finding(folder, finding)
    walk(call, (show_command(folder, own), 0))


@pytest.mark.parametrize(
    "first",
    [
        "aliasproof fuzz --target 'my passes.py:drops_writes' --programs 10 -j 1 --run 'my run'",
        "aliasproof hunt --target 'my passes.py:doubled' --programs 2 -j 1 --run 'my run'",
    ],
)
def test_what_a_campaign_prints_works(call, tmp_path: Path, first: str) -> None:
    write_inputs(tmp_path)
    assert walk(call, (first, 0)).keys() >= {"show"}
