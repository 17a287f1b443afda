"""What the tests of the command line share: calling it in this process, and a target that is wrong on purpose."""

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
    """What a call left: exit code, standard output and standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(capsys, tmp_path, monkeypatch) -> Callable[..., Outcome]:
    """Calls the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call_here(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(each) for each in arguments])
        return Outcome(code, *capsys.readouterr())

    return call_here


def forgetful(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Runs the function on copies, so that no input is ever written."""
    return Build(lambda *tensors: function(*(each.clone() for each in tensors)), [])


@pytest.fixture
def forgetful_target(monkeypatch) -> Target:
    """A target of which every mutation of an input is lost."""
    target = Target("forgetful", "loses mutations", Contract(), forgetful, "")
    monkeypatch.setitem(TARGETS, target.name, target)
    return target
