"""Fixtures for the tests of the commands: a call in this process, and a wrong target."""

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from aliasproof.commands.command_line import run
from aliasproof.ir.program import Program
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.given_tolerance import NONE_GIVEN, compared_within
from aliasproof.targets import names
from aliasproof.targets.registry import TARGETS, SymbolicBuild
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import Tracing
from aliasproof.targets.variants import SYMBOLIC
from tests.aliasproof.planted_targets import stale
from tests.short_programs import program_of, view


@dataclass(frozen=True)
class Outcome:
    """The exit code, standard output and standard error of a call."""

    code: int
    out: str
    err: str

    def json(self, code: int = 0) -> Any:
        """The JSON object that a call prints; it must end with this exit code."""
        assert self.code == code, self
        return json.loads(self.out)

    @property
    def refusal(self) -> str:
        """Standard error of a call that refuses bad input: one line, after any notes."""
        assert (self.code, self.out) == (2, ""), self
        *before, line = self.err.splitlines()
        assert all(note.startswith("note: ") for note in before), self
        assert line.startswith("aliasproof: ")
        return self.err


@pytest.fixture
def call(capsys, tmp_path, monkeypatch) -> Callable[..., Outcome]:
    """Calls a command in an empty folder. Targets that a test registers are known names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(names, "REGISTERED", TARGETS)

    def call_here(*arguments: object) -> Outcome:
        capsys.readouterr()
        with compared_within(NONE_GIVEN):  # the tolerance of a command ends with it
            code = run([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call_here


def forgetful(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Runs the function on copies, so that no input is ever written."""
    return Build(lambda *tensors: function(*(tensor.clone() for tensor in tensors)), [])


@pytest.fixture
def plant(monkeypatch) -> Callable[..., None]:
    """`plant(name, build)`: registers a target, which promises everything by default."""

    def registered(name: str, build: Any, **others: Any) -> None:
        target = replace(Target(name, "", Contract(), build, ""), **others)
        monkeypatch.setitem(TARGETS, name, target)

    return registered


@pytest.fixture
def forgetful_target(plant) -> None:
    """A target that loses every mutation of an input."""
    plant("forgetful", forgetful)


@pytest.fixture
def stale_target(plant) -> None:
    """A target that computes with other inputs than the given ones."""
    plant("stale", stale)


@pytest.fixture
def planted(plant) -> Callable[[str, SymbolicBuild], None]:
    """Registers a target that has only a symbolic build."""

    def registered(name: str, build: SymbolicBuild) -> None:
        def built(function: Function, fakes: Sequence[torch.Tensor], tracing: Tracing) -> Build:
            return Build(build(function, fakes), [])

        plant(name, built, variants=(SYMBOLIC,))

    return registered


@pytest.fixture
def write(tmp_path) -> Callable[[str], str]:
    """Writes mine.py, and returns its name."""

    def write_file(text: str) -> str:
        (tmp_path / "mine.py").write_text(textwrap.dedent(text))
        return "mine.py"

    return write_file


@pytest.fixture
def write_program(write: Callable[[str], str]) -> Callable[..., str]:
    """`write_program("return x + 1", "torch.ones(2)")`: mine.py with this program(x) and inputs."""

    def write_file(
        body: str, given: str = "torch.ones(2)", head: str = "", name: str = "program"
    ) -> str:
        function = f"def {name}(x):\n{textwrap.indent(body, '    ')}\n"
        return write(f"import torch\n{head}\n{function}\ndef inputs():\n    return {given}\n")

    return write_file


@pytest.fixture
def adding_program() -> Program:
    """A program that adds 1 to its input in place."""
    return program_of("aten.add_.Scalar(x0, 1)\nreturn (x0,)", view(4))
