"""Each walk-through of CONTRIBUTING.md, followed to the letter in a copy of the repository."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from aliasproof.commands.command_line import app
from benchmarks.__main__ import BENCHMARKS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = dict(
    re.findall(
        r"^### (.+?)\n(.*?)(?=^##)", TEXT.partition("## Walk-throughs")[2], re.MULTILINE | re.DOTALL
    )
)
NAMES = (
    "An op",
    "An aliasing scenario",
    "An oracle",
    "A target",
    "A planted fault",
    "A reducer step",
    "A known bug",
)

# A sentence that ends in a colon says where the following block of code goes.
EDIT = re.compile(
    r"(?:New file\s`(?P<new>[^`]+)`"
    r"|In\s`(?P<old>[^`]+)`,\s(?P<how>above|below|in\splace\sof)\s`(?P<anchor>[^`]+)`)"
    r":\n\n```\w+\n(?P<text>.*?)```",
    re.DOTALL,
)
COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
# A command within a sentence.
INLINE = re.compile(r"`((?:python|make|aliasproof) [^`]+)`")
# The parts of the repository that a walk-through needs.
COPIED = ("docs", "pyproject.toml", "tests", "README.md", "CONTRIBUTING.md")
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A copy of the repository."""
    for name in (*COPIED, *PACKAGES):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source,
                tmp_path / name,
                symlinks=True,  # aliasproof/oracles is one to oracles/
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


def follow(edit: re.Match[str], scratch: Path) -> None:
    """Write the new file, or insert the lines where the text says."""
    if edit["new"]:
        path = scratch / edit["new"]
        assert not path.exists(), f"{edit['new']} is there already"
        path.write_text(edit["text"], encoding="utf-8")
        return
    path = scratch / edit["old"]
    lines = path.read_text(encoding="utf-8").split("\n")
    anchor = edit["anchor"].split("\n")
    width = len(anchor)
    positions = [
        index
        for index in range(len(lines))
        if [line.strip() for line in lines[index : index + width]]
        == [line.strip() for line in anchor]
    ]
    assert positions, f"{edit['old']} has no line `{edit['anchor']}`"
    start, end = {
        "above": (positions[0], positions[0]),
        "below": (positions[0] + width, positions[0] + width),
    }.get(edit["how"], (positions[0], positions[0] + width))
    # Two empty lines precede a function.
    gap = ["", ""] if edit["text"].startswith(("def ", "@")) else []
    lines[start:end] = edit["text"].removesuffix("\n").split("\n") + gap
    path.write_text("\n".join(lines), encoding="utf-8")


def commands_of_text(text: str) -> list[list[str]]:
    """The commands in sentences. Placeholders are in capitals."""
    return [shlex.split(command) for command in INLINE.findall(text)]


def run(words: list[str], scratch: Path, status: int = 0) -> str:
    """Run a module of Python in the copy, which exits with this status, and give what it prints."""
    environment = os.environ | {"PYTHONPATH": str(scratch)}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=scratch,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def test_the_walk_throughs_are_those_that_a_newcomer_needs() -> None:
    assert tuple(SECTIONS) == NAMES


def test_the_commands_of_the_text_exist() -> None:
    """A benchmark, a target of the Makefile, a module and a command by their names."""
    targets = re.findall(r"^([\w-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = {it.name or getattr(it.callback, "__name__", "") for it in app.registered_commands}
    for words in commands_of_text(TEXT):
        match words:
            case ["make", name, *_]:
                assert name in targets, words
            case ["python", "-m", "benchmarks", *names]:
                assert names[0] in BENCHMARKS, words
            case ["python", "-m", module, *_]:
                assert find_spec(module), words
            case ["aliasproof", name, *_]:
                assert name in commands, words
    assert ["python", "-m", "benchmarks", "rediscovery"] in commands_of_text(TEXT)


@pytest.mark.parametrize("name", NAMES)
def test_each_block_of_code_says_where_it_goes(name: str, tmp_path: Path) -> None:
    edits = list(EDIT.finditer(SECTIONS[name]))
    blocks = re.findall(r"^```(?:python|text)$", SECTIONS[name], re.MULTILINE)
    assert edits
    assert len(edits) == len(blocks), "a block of code without a sentence that says where it goes"
    assert COMMAND.findall(SECTIONS[name])
    for edit in edits:
        path = edit["new"] or edit["old"]
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).exists() and not (tmp_path / path).exists():
            shutil.copy(ROOT / path, tmp_path / path)
        follow(edit, tmp_path)


@pytest.mark.timeout(1800)
def test_the_walk_throughs_work(scratch: Path) -> None:
    """All in one copy, one after the other, each command once: imports take most of the time."""
    paths, selected = [], []
    for section in SECTIONS.values():
        for edit in EDIT.finditer(section):
            follow(edit, scratch)
    run(["ruff", "check", "--no-cache", "."], scratch)
    run(["ruff", "format", "--check", "--no-cache", "."], scratch)
    for command in dict.fromkeys(COMMAND.findall("".join(SECTIONS.values()))):
        words = shlex.split(command)
        if words[:2] == ["make", "test"]:  # make test ARGS='FILE... -k "..."'
            files, _, names = words[2].removeprefix("ARGS=").partition(" -k ")
            of_files = " or ".join(Path(file).stem for file in files.split())
            paths += files.split()
            selected.append(f"({of_files}) and ({names.strip(chr(34))})" if names else of_files)
        else:
            assert words[0] == "aliasproof"
            run(words, scratch)
    assert len(selected) > 4
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not thorough"]
    run(["pytest", *options, *paths, "-k", " or ".join(f"({it})" for it in selected)], scratch)


# Programs and compilers whose results are right, and inference tensors; what issues say of these.
FILES = {
    "mine.py": """
import torch


def program(x):
    return x + 1


def inputs():
    return torch.arange(4.0)
""",
    "train.py": "import torch\ntorch.compile(lambda x: x + 1)(torch.ones(4))\n",
    "passes.py": """
import torch


def wrong(graph_module, example_inputs):
    return torch.inference_mode()(lambda *args: graph_module(*args))
""",
    "issues.py": """
from dataclasses import replace
from tests.campaigns.test_issue_words import issue_of
from tests.campaigns.test_python_hunt import FINDING, python_issue

print(issue_of(oracle="inference", kind="wrong mode", place="output 0"))
print(python_issue(replace(FINDING, oracle="inference", kind="wrong mode", place="x"), ""))
""",
}
FAULT = """

@python_fault("the mode of the caller")
@within
def inference_mode(args: tuple[Any, ...]) -> Iterator[None]:
    with torch.inference_mode():
        yield
"""


@pytest.mark.timeout(1800)
def test_a_new_oracle_shows_in_all_that_finds_and_prints(scratch: Path) -> None:
    """Its file and the two lines that list it are enough."""
    for edit in EDIT.finditer(SECTIONS["An oracle"]):
        if (edit["new"] or edit["old"]).startswith("oracles/"):
            follow(edit, scratch)
    for name, text in FILES.items():
        (scratch / name).write_text(text, encoding="utf-8")
    with (scratch / "aliasproof/faults/python_faults.py").open("a", encoding="utf-8") as faults:
        faults.write(FAULT)
    own = ["--target", "passes.py:wrong"]
    assert "wrong mode (output 0)" in run(["aliasproof", "check", "mine.py", *own], scratch, 1)
    assert "inference: wrong mode in output 0" in run(
        ["aliasproof", "run", *own, "train.py"], scratch
    )
    for command, programs in (("fuzz", "2"), ("hunt", "8")):
        words = ["aliasproof", command, *own, "--seed=1", "--programs", programs, "--run", command]
        assert "wrong mode (" in run(words, scratch)
    scripts = [path.read_text("utf-8") for path in scratch.glob("fuzz/findings/*/reproducer.py")]
    assert any("return outputs[0].is_inference()" in script for script in scripts)
    formats = [f"--format={it}" for it in ("html", "junit", "sarif")]
    run(["aliasproof", "report", "fuzz", "--out", "page", "--seconds=0", *formats], scratch)
    for name in ("report.html", "junit.xml", "aliasproof.sarif"):
        assert "inference" in (scratch / "page" / name).read_text(encoding="utf-8")
    issues = run(["issues"], scratch)
    assert issues.count("Autograd takes no inference tensor") == 2
    assert 'left["x"].is_inference()' in issues
    words = ["aliasproof", "faults", "--fault", "inference mode", "--programs", "5"]
    assert "killed by inference alone: 1: inference mode" in run(words, scratch)
