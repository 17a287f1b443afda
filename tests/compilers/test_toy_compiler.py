"""A compiler in its own package: after `pip install`, every command knows it."""

import json
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "samples" / "toy_compiler"
WRITES = """
import torch

def program(x):
    return x.add_(1) * 2

def inputs():
    return (torch.arange(4.),)
"""
COMMANDS = """
import json, sys
from aliasproof.commands.command_line import run
from aliasproof.targets.names import expanded
for arguments in json.loads(sys.argv[1]):
    print("exit", run(arguments))
print(expanded(["all-compilers"]))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs commands in an environment that also has this package."""
    folder = tmp_path_factory.mktemp("toy")
    venv.create(folder / "environment")
    python = folder / "environment" / "bin" / "python"
    (installed,) = python.parents[1].glob("lib/python*/site-packages")
    lines = [f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages()]
    (installed / "here.pth").write_text("".join(lines))
    source = shutil.copytree(PACKAGE, folder / "source")  # pip writes into it
    offline = ("--no-index", "--no-deps", "--no-build-isolation")
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", *offline, str(source))
    subprocess.run(pip, check=True, capture_output=True)
    (folder / "mine.py").write_text(WRITES)

    def run_commands(*commands: list[str]) -> str:
        done = subprocess.run(
            [python, "-c", COMMANDS, json.dumps(commands)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_commands


def test_commands_know_it_and_its_bug(run: Callable[..., str]) -> None:
    check = ["check", "mine.py", "--target"]
    text = run(
        ["targets"],
        ["targets", "toy"],
        [*check, "toy"],
        [*check, "toy:shared-inputs"],
        ["known", "-t", "toy"],
    )
    assert "\ntoy: an interpreter of ATen calls" in text
    assert "the README of toy-compiler" in text
    assert "\nTARGET:shared-inputs: the machine computes" in text
    assert "Known bug: toy-inputs-copied" in text
    assert "Nothing wrong: toy:shared-inputs." in text
    assert text.count("exit 0") == 4
    assert text.rstrip().endswith("'relax', 'toy']")


def test_a_campaign_finds_its_bug_and_the_reproducer_shows_it(run: Callable[..., str]) -> None:
    text = run(["fuzz", "--target", "toy", "--programs", "5", "--workers", "1"])
    assert "by 1 known bug: toy-inputs-copied" in text
    assert "reproducer.py" in text
    assert "not shown by a reproducer" not in text
