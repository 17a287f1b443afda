"""Reproducers need torch alone, and show a bug if and only if it is there."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from campaigns.reproducer import confirm, render
from oracles.judge import ON_RESULTS
from oracles.verdict import Violation
from programs.execution import ProgramFunction
from programs.program import Input, Instruction, Program, Ref, Storage
from targets.registry import TARGETS

CLEARED = Program(
    (Storage(torch.float32, 4),),
    (Input("x0", 0, torch.float32, (4,), (1,)),),
    (
        Instruction("aten.expand.default", (Ref("x0"), (3, 4)), results=("v0",)),
        Instruction("aten.zero_.default", (Ref("v0"),)),
    ),
    ("x0",),
)

# What a target could do wrong, as the source of a recipe: one per oracle.
COMPILED = "def compiled(program, inputs):\n    "
WRONG = {
    "values": COMPILED + "return lambda x: [output + 1 for output in program(x)]",
    "inputs": COMPILED + "return lambda x: [program(x.clone())[0].zero_() * 0]",
    "aliasing": COMPILED + "return lambda x: [output.clone() for output in program(x)]",
    "metadata": COMPILED + "return lambda x: [output.expand(1, 4) for output in program(x)]",
    "errors": COMPILED + "raise RuntimeError('no')",
}


def script(tmp_path: Path, recipe: str, oracle: str) -> Path:
    target = replace(TARGETS["identity"], recipe=recipe)
    path = tmp_path / "reproducer.py"
    path.write_text(render(CLEARED, target, Violation(oracle, "wrong", "somewhere"), exact=True))
    return path


@pytest.mark.parametrize("oracle", ON_RESULTS)
def test_shows_what_is_wrong(tmp_path: Path, oracle: str) -> None:
    assert oracle in WRONG, "say in WRONG what a target does that this oracle reports"
    confirmation = confirm(script(tmp_path, WRONG[oracle], oracle))
    assert confirmation.shown, confirmation.output
    assert "eager" in confirmation.output


@pytest.mark.parametrize("oracle", ON_RESULTS)
def test_says_when_it_is_gone(tmp_path: Path, oracle: str) -> None:
    confirmation = confirm(script(tmp_path, TARGETS["identity"].recipe, oracle))
    assert (confirmation.shown, confirmation.ending) == (False, "exits 0"), confirmation.output


def test_a_script_that_fails_itself_shows_nothing(tmp_path: Path) -> None:
    confirmation = confirm(script(tmp_path, "import no_such_module", "values"))
    assert (confirmation.shown, confirmation.ending) == (False, "exits 1")


def test_a_script_that_hangs_shows_nothing(tmp_path: Path) -> None:
    confirmation = confirm(script(tmp_path, "import time\ntime.sleep(60)", "values"), timeout=0.5)
    assert not confirmation.shown
    assert confirmation.ending.startswith("hangs")


def test_death_is_shown_by_a_child(tmp_path: Path) -> None:
    recipe = "import os\n\n\ndef compiled(program, inputs):\n    os.kill(os.getpid(), 11)"
    target = replace(TARGETS["identity"], recipe=recipe)
    path = tmp_path / "reproducer.py"
    path.write_text(
        render(CLEARED, target, Violation("errors", "dies of signal 11", "call"), exact=True)
    )
    confirmation = confirm(path)
    assert (confirmation.shown, confirmation.ending) == (True, "exits 1"), confirmation.output


@pytest.mark.parametrize("name", TARGETS)
def test_imports_only_torch_and_the_accused(name: str) -> None:
    text = render(
        CLEARED, TARGETS[name], Violation("values", "wrong value", "output 0"), exact=False
    )
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).split(".")[0])
    assert imported <= {
        "copy",
        "logging",
        "sys",
        "torch",
        *(["reference_pass"] if name.startswith("reference") else []),
    }


def test_the_printed_program_is_the_program(tmp_path: Path) -> None:
    text = render(
        CLEARED, TARGETS["identity"], Violation("values", "wrong value", "output 0"), exact=True
    )
    scope: dict[str, object] = {"__name__": "reproducer"}
    exec(compile(text.replace("\nmain()\n", "\n"), "reproducer", "exec"), scope)
    inputs, program = scope["inputs"], scope["program"]
    assert callable(inputs)
    assert callable(program)
    printed = program(*inputs())
    expected = ProgramFunction(CLEARED)(*inputs())
    assert all(torch.equal(one, other) for one, other in zip(printed, expected, strict=True))
