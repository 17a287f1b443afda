"""`aliasproof check`: what is printed about a user's file, and how much memory it takes."""

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from aliasproof.ir.serialization import dumps
from aliasproof.oracles.judge import oracle_names
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.names import CHECKED, FUZZED, PROVED
from tests.aliasproof.conftest import Outcome
from tests.short_programs import known_bug
from tests.subprocesses import python

PAGE = Path(__file__).parents[2] / "docs" / "check.md"
# In torch 2.13, zeroing an expanded input through AOTAutograd gives values other than zero.
MISCOMPILED = "x.expand(3, 4).zero_()\nreturn x + 0", "torch.arange(4.)"


@pytest.fixture
def check(call) -> Callable[..., Outcome]:
    return partial(call, "check", "--in-process")


def test_nothing_wrong(check, write_program):
    outcome = check(write_program("return x + 1", "[torch.ones(2)]"))
    assert outcome.code == 0
    first, *_, last = outcome.out.splitlines()
    assert first.endswith(", eager beside aot-eager, inductor-fx, inductor")
    assert last == "Nothing wrong: aot-eager, inductor-fx, inductor."
    assert outcome.err == ""


def test_without_a_compiler_a_note_says_what_is_left_out(check, write_program, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    outcome = check(write_program("return x + 1"))
    assert outcome.code == 0
    assert outcome.out.strip().endswith("Nothing wrong: aot-eager, inductor-fx.")
    assert outcome.err.startswith("note: left out: inductor needs a C++ compiler")


def test_a_documented_difference_is_no_failure_and_fits_one_screen(call, write_program):
    # A step of training, which torch.func.functionalize refuses, as it documents.
    step = "(x @ weight).pow(2).sum().backward()\nreturn x.expand(9, 40, 40).clone()"
    weight = "weight = torch.nn.Parameter(torch.ones(40, 40))"
    file = write_program(step, "torch.ones(40, 40)", head=weight)
    arguments = ("check", "--in-process", file, "--target", "functionalize")
    outcome = call(*arguments, "--target", "identity")
    assert outcome.code == 0
    assert "functionalize: refuses 'autograd inside of a transform', documented" in outcome.out
    assert len(outcome.out.splitlines() + outcome.err.splitlines()) <= 25
    whole = call(*arguments, "--documented")
    assert whole.code == 0
    assert "a functorch transform, and these neither set requires_grad" in whole.out


@pytest.mark.parametrize(
    ("command", "targets"), [("check", CHECKED), ("fuzz", FUZZED), ("prove", PROVED)]
)
def test_the_help_names_the_default_targets(call, command, targets):
    printed = "".join(call(command, "--help").out.split())  # it breaks lines at hyphens, too
    assert f"Default:{','.join(targets)}" in printed


NAMED = "Known bug: expand-inverse - a write through expand adds up the copies"
# AOTAutograd replays a view of a view only in training.
REPLAYED = "y = (x * 2).t()\nreturn y, y.detach()", "torch.ones(2, 2, requires_grad=True)"


@known_bug
def test_the_known_bug_is_named(call, check, write_program):
    rows = ("--target", "aot", "--target", "aot-epilogue")
    outcome = check(write_program(*MISCOMPILED), *rows)
    assert outcome.out.splitlines()[-1].startswith(NAMED)
    assert outcome.out.strip().endswith("(aliasproof known expand-inverse)")
    found = call("check", "mine.py", *rows, "--target", "identity", "--json").json(1)
    named = {name: target["known bug"] for name, target in found["targets"].items()}
    assert named == {"aot": "expand-inverse", "aot-epilogue": "expand-inverse", "identity": None}


@known_bug
def test_the_known_bug_of_training_is_named(check, write_program):
    rows = ("--target", "aot-eager", "--grad")
    outcome = check(write_program(*REPLAYED), *rows)
    assert "Known bug: detached-view-replayed - " in outcome.out.splitlines()[-1]


def test_a_row_that_is_wrong_in_another_way_too_gets_no_name(check, write_program):
    body, given = MISCOMPILED
    file = write_program(body.replace("x + 0", "x + torch.compiler.is_compiling()"), given)
    outcome = check(file, "--target", "aot-eager")
    assert outcome.code == 1
    assert "Known bug" not in outcome.out


def test_a_check_that_finds_nothing_wrong_looks_for_no_known_bug(check, write_program, monkeypatch):
    monkeypatch.setattr("aliasproof.checks.check_session.known_bug", None)
    file = write_program(*MISCOMPILED)
    assert check(file, "--target", "identity").code == 0


def test_what_is_wrong_comes_with_the_command_that_reduces_it(
    call, write_program, forgetful_target
):
    file = write_program("x.add_(1)", name="step")
    outcome = call("check", "--in-process", file, "--target", "forgetful", "--function", "step")
    command = f"aliasproof minimize {file} --target forgetful --function step"
    assert outcome.err.strip().endswith(f"for a short program that shows it: {command}")


def test_what_an_earlier_target_breaks_is_shown_once(check, write_program):
    outcome = check(write_program(*MISCOMPILED), "--target", "aot", "--target", "aot-epilogue")
    assert "── aot, aot-epilogue ──" in outcome.out
    assert outcome.out.count("values: wrong value (output 0)") == 1
    # The reason of a label is printed once per target.
    assert outcome.out.count("maintainers are not sure") == 1


def test_json(check, write_program, forgetful_target):
    file = write_program("return x.add_(1)", "torch.zeros(2)")
    found = check(file, "--target", "forgetful", "--target", "identity", "--json").json(1)
    assert set(found) == {"file", "torch", "notes", "eager", "targets", "violated", "judged"}
    about = [found[name] for name in ("file", "torch", "violated")]
    assert about == ["mine.py", torch.__version__, True]
    assert found["eager"]["judged"] is True
    assert found["eager"]["outputs"] == ["tensor([1., 1.])"]
    assert set(found["targets"]) == {"forgetful", "identity"}
    for target in found["targets"].values():
        assert set(target) == {
            *("oracles", "verdict", "judged", "violated", "missed"),
            *("first wrong after", "untested", "known bug"),
        }
        assert list(target["oracles"]) == [*oracle_names(paths=False, memory=False)]
        for report in target["oracles"].values():
            assert {"judged", "verdict", "evidence", "reason", "violations"} <= set(report)
            assert report["verdict"] in {known.value for known in Verdict}
    assert found["targets"]["identity"]["violated"] is False
    inputs = found["targets"]["forgetful"]["oracles"]["inputs"]
    assert inputs["verdict"] == "violated"
    assert inputs["violations"][0]["place"] == "input 'x'"
    assert inputs["violations"][0]["evidence"]["eager"] == "1.0"


def test_what_the_file_prints_is_not_a_result(check, write_program):
    file = write_program("print('b')\nreturn x", head="print('a')")
    outcome = check(file, "--json", "--target", "identity")
    assert json.loads(outcome.out)["violated"] is False
    assert {"a", "b"} <= set(outcome.err.split())


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "return x.expand(3, 3).add_(torch.arange(3.))",
            "it is undefined in eager: aten.add_.Tensor writes through a region",
        ),
        (
            "return torch.sparse.sum(x.to_sparse())",
            "it cannot be judged: aten.is_coalesced.default takes a torch.sparse_coo tensor",
        ),
    ],
    ids=["undefined", "sparse"],
)
def test_a_program_that_cannot_be_judged_is_not_called_right(check, write_program, body, why):
    file = write_program(body, "torch.ones(3)")
    outcome = check(file)
    assert outcome.code == 4
    assert why in outcome.out
    found = check(file, "--json").json(4)
    assert found["eager"]["judged"] is False
    assert why in found["eager"]["reason"]
    verdicts = {
        r["verdict"] for target in found["targets"].values() for r in target["oracles"].values()
    }
    assert verdicts == {"not applicable"}


def test_eager_raises(check, write_program):
    file = write_program("return x + torch.ones(7)", "torch.ones(3)")
    outcome = check(file, "--target", "aot")
    assert outcome.code == 4
    assert "eager raises RuntimeError: The size of tensor a" in outcome.out
    assert "(line 4)" in outcome.out
    assert "no results to compare" in outcome.out


def test_other_names_and_neighbours(check, write, tmp_path):
    (tmp_path / "neighbour.py").write_text("def f(x):\n    return x.sin()\n")
    file = write(
        "import torch\nfrom neighbour import f\ndef made():\n    return (torch.ones(1),)\n"
    )
    names = ("--function", "f", "--inputs", "made")
    assert check(file, *names, "--target", "aot").code == 0
    assert not (tmp_path / "__pycache__" / "mine.pyc").exists()


@pytest.mark.parametrize(
    ("command", "colons"),
    [
        ("check --in-process", ":"),
        ("check --in-process", "::"),
        ("explain", "::"),
        ("prove", "::"),
        ("minimize --workers 1", "::"),
    ],
)
def test_the_function_can_be_named_as_pytest_does(call, write_program, command, colons):
    given = write_program(*MISCOMPILED, name="step")
    name, *options = command.split()
    target = () if name == "explain" else ("--target", "aot")
    outcome = call(name, *options, f"{given}{colons}step", *target)
    assert outcome.code == (1 if name == "check" else 0), outcome
    assert str(given) in outcome.out or name == "minimize"
    if name == "check":
        assert outcome.err.endswith(f"minimize {given} --target aot --function step\n")


def test_a_note_says_that_gradients_are_left_out(check, write_program):
    file = write_program("return x * 2", "torch.ones(2, requires_grad=True)")
    outcome = check(file, "--target", "aot")
    assert outcome.code == 0
    assert outcome.err.startswith("note: the backward pass is not compared; the variant 'grad'")


def test_a_program_and_the_folder_of_a_finding(check, adding_program, tmp_path):
    (tmp_path / "program.json").write_text(dumps(adding_program))
    for where in ("program.json", tmp_path):
        assert check(where, "--target", "aot").code == 0


def test_the_page_shows_what_the_command_prints(call, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # output to a file is 100 columns wide
    text = PAGE.read_text(encoding="utf-8")
    ((code, name),) = re.findall(r"```python\n(# (\w+.py)\n.*?)```", text, re.DOTALL)
    (tmp_path / name).write_text(code)
    ((command, shown),) = re.findall(r"\$ aliasproof (check .*?)\n(.*?)```", text, re.DOTALL)
    outcome = call(*command.split(), "--in-process")
    assert outcome.code == 1
    assert without_version(outcome.out) == without_version(shown)


def without_version(text: str) -> list[str]:
    return [re.sub(r" in torch \S+,", "", line) for line in text.splitlines()]


OFF = """
import torch
def off(graph):
    for node in graph.graph.nodes:
        if node.args[1:] == (3,):
            node.args = (node.args[0], 3.003)
"""


@pytest.mark.parametrize("command", ["check --in-process", "minimize --workers 1"])
def test_a_tolerance_that_is_given_is_that_of_all_values(call, tmp_path, write_program, command):
    file = write_program("return x * 3", "torch.arange(1.0, 5)")
    (tmp_path / "off.py").write_text(OFF)
    name, *options = command.split()
    given = [name, file, "--target", "off.py:off", *options]
    wrong, right = {"check": (1, 0), "minimize": (0, 2)}[name]
    assert call(*given, "--rtol", 0.0001).code == wrong
    assert call(*given, "--rtol", 0.01).code == right
    assert "--atol -1: give a number of at least 0" in call(*given, "--atol", -1).refusal


# --- memory ---------------------------------------------------------------------------------------


LARGE, SMALL = 3072, 4  # inputs are square float32 matrices
# 40 new tensors: each that is kept costs one byte per byte of the input. If none is kept, a check
# takes 8 to 13 bytes, since freed memory is not always reused.
CODE = """
import torch
def program(x):
    for _ in range(20):
        x = torch.sigmoid(x) * 2
    return x
def inputs():
    return torch.rand({size}, {size})
"""
# Measured in a new process: the peak of a forked one would be at least that of its parent.
MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
print(os.wait4(process.pid, 0)[2].ru_maxrss)
"""


def peak(folder: Path, size: int) -> int:
    """The peak memory of a check, in bytes."""
    file = folder / "mine.py"
    file.write_text(CODE.format(size=size))
    command = ("aliasproof", "check", "--in-process", str(file), "--target", "functionalize")
    done = python("-c", MEASURE, sys.executable, "-m", *command)
    assert done.returncode == 0, done.stderr
    # In kilobytes on Linux, in bytes on macOS.
    most: int = json.loads(done.stdout)
    return most if sys.platform == "darwin" else 1024 * most


def test_a_check_takes_a_few_bytes_per_byte_of_its_input(tmp_path: Path) -> None:
    per_byte = (peak(tmp_path, LARGE) - peak(tmp_path, SMALL)) / (4 * LARGE**2)
    assert 3 < per_byte < 20
