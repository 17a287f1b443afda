"""A user's file runs once per process, since operators cannot be registered twice."""

import importlib
from pathlib import Path

import pytest

OPERATORS = """
import torch

runs = torch.rand(1).item()  # as weights that are made with the module
library = torch.library.Library("{name}", "DEF")
library.define("twice(Tensor x) -> Tensor")

@torch.library.impl(library, "twice", "CompositeExplicitAutograd")
def twice(x):
    return x * 2

@torch.library.register_fake("{name}::twice")
def _(x):
    return torch.empty_like(x)

@torch.library.custom_op("{name}::add_into", mutates_args=("total",))
def add_into(total: torch.Tensor, x: torch.Tensor) -> None:
    total.add_(x)

@add_into.register_fake
def _(total, x):
    pass

def program(total, x):
    add_into(total[1:], x[1:])
    return torch.ops.{name}.twice(total) * runs

def inputs():
    return torch.zeros(3), torch.ones(3)

def unchanged(graph_module):
    return graph_module
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / f"operators_{tmp_path.name}.py"
    path.write_text(OPERATORS.format(name=path.stem))
    return path


def test_function_pass_and_operators_may_be_in_one_file(call, file: Path) -> None:
    outcome = call("check", file, "--target", f"{file}:unchanged", "--target", "aot-eager")
    assert outcome.code == 0, outcome
    assert outcome.out.endswith(f"Nothing wrong: {file}:unchanged, aot-eager.\n")


def test_a_file_can_be_checked_twice_in_one_process(call, file: Path) -> None:
    for _ in range(2):
        outcome = call("check", "--in-process", file, "--target", "aot-eager")
        assert outcome.code == 0, outcome


def test_a_file_that_was_changed_runs_again(call, tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    text = "import torch\ndef program(x): return x + {}\ndef inputs(): return torch.ones(1)\n"
    for number in (1, 2):
        file.write_text(text.format(number))
        outcome = call("check", "--in-process", file, "--target", "aot-eager")
        assert f"eager output 0  tensor([{1.0 + number:.0f}.])" in outcome.out


def test_what_a_test_imported_is_not_run_again(call, file: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(file.parent)
    importlib.import_module(file.stem)
    outcome = call("check", "--in-process", file, "--target", f"{file}:unchanged")
    assert outcome.code == 0, outcome
