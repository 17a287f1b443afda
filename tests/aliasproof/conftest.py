"""Fixtures for the tests of the commands: a call in this process, and a wrong target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch

from aliasproof.command_line import run
from oracles.contract import Contract
from targets.registry import TARGETS
from targets.target import Build, Function, Target


@dataclass(frozen=True)
class Outcome:
    """The exit code, standard output and standard error of a call."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(capsys, tmp_path, monkeypatch) -> Callable[..., Outcome]:
    """Calls a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call_here(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call_here


def forgetful(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Runs the function on copies, so that no input is ever written."""
    return Build(lambda *tensors: function(*(tensor.clone() for tensor in tensors)), [])


@pytest.fixture
def forgetful_target(monkeypatch) -> Target:
    """A target that loses every mutation of an input."""
    target = Target("forgetful", "loses mutations", Contract(), forgetful, "")
    monkeypatch.setitem(TARGETS, target.name, target)
    return target
