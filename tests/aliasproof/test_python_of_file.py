"""A user's file as Python programs: in eager, these do the same as the file."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from aliasproof.ir.errors import UserError
from aliasproof.ir.python_program import PythonProgram
from aliasproof.user_code import user_file
from aliasproof.user_code.given_path import FileNames
from aliasproof.user_code.python_of_file import python_programs

FILES = """
# a module
from torch import nn
from torch.nn import functional as F
class Twice(nn.Module):
    '''Doubles.'''
    def __init__(self, factor: int):
        super().__init__()
        self.register_buffer("my_factor", torch.tensor(factor))
    def double_it(self, x: "Tensor") -> "Tensor":
        return F.relu(x) * self.my_factor
    def forward(self, x):
        return self.double_it(x)
program = Twice(2)
def inputs():
    return torch.ones(2)

# a closure
def make(factor):
    def scaled(x):
        return x * factor
    return scaled
program = make(2)

# a keyword
def program(x, *, factor=3):
    return x * factor
def inputs():
    return (torch.ones(2),), {"factor": 2}

# a default
def program(x, factor=2):
    return x * factor
def inputs():
    return [torch.ones(2)]

# a dict of arguments
def program(x, factor):
    return x * factor
def inputs():
    return {"factor": 2, "x": torch.ones(2)}

# locals of other names
def program(x, y):
    return x + y[0]
def inputs():
    x = torch.ones(2)
    return x.view(2), x
if __name__ == "__main__":
    program(*inputs())

# layers and functions of math
import math
import os
import numpy as np
from collections import deque
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
import torch.nn.functional as F
from math import sqrt as root
@dataclass
class Scale:
    factor: float
    def of(self, x):
        return x * self.factor
scales = deque([partial(Scale(root(4.0)).of)])
layer = deepcopy(torch.nn.Sequential(torch.nn.Identity(), torch.nn.Conv1d(1, 1, 1, bias=False)))
torch.nn.init.ones_(layer[1].weight)
def program(x):
    y = F.interpolate(layer(x[None, None]), scale_factor=math.ceil(0.1), mode="nearest")[0, 0]
    sizes = {f"size {size}": size for size in sorted([abs(-2)])}
    zeros = torch.zeros(sizes["size 2"], dtype=torch.uint8, device=x.device)
    return scales[0](y.detach()) + zeros.to(memory_format=torch.preserve_format)
def inputs():
    return [*((z := torch.ones(2)) for _ in range(1))]

# a loop operator
from torch._higher_order_ops.while_loop import while_loop
def program(x):
    return while_loop(lambda v: v.sum() < 4, lambda v: (v * 2,), (x,))[0]
"""
KINDS = dict(text.split("\n", 1) for text in re.split(r"^# ", FILES, flags=re.MULTILINE)[1:])
INPUTS = "def inputs():\n    return (torch.ones(2),)\n"  # unless a file has others


def programs(folder: Path, text: str) -> list[PythonProgram]:
    path, names = folder / "mine.py", FileNames()
    path.write_text(f"import torch\n{text}")
    given = user_file.read(path, names)
    assert isinstance(given, user_file.UserFunction)
    return list(python_programs(path, names, given))


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_returns_what_the_function_returns(kind: str, tmp_path: Path) -> None:
    text = KINDS[kind] if "def inputs" in KINDS[kind] else KINDS[kind] + INPUTS
    once, _, twice, *_ = programs(tmp_path, text)
    for program, names in ((once, ("out",)), (twice, ("out", "second"))):
        left = program.run()
        for name in names:
            assert torch.equal(left[name], torch.full((2,), 2.0))  # type: ignore[arg-type]


def test_what_had_the_data_of_an_input_is_kept(tmp_path: Path) -> None:
    text = "def program(x):\n    x.data.mul_(3)\n    x.data = x.data + 1\n"
    left: Any = programs(tmp_path, text + INPUTS)[4].run()
    assert [it.tolist() for it in (left["x"], *left["kept"])] == [[4, 4], [3, 3]]


def test_a_backward_pass_follows(tmp_path: Path) -> None:
    text = """
def program(x):
    return {"unused": 1}, x * 2

def inputs():
    return (torch.ones(2, requires_grad=True),)
"""
    _, differentiated, *_ = programs(tmp_path, text)
    x = differentiated.run()["x"]
    assert isinstance(x, torch.Tensor)
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]


def test_what_the_language_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no attribute '_version' in the language"):
        programs(tmp_path, f"def program(x):\n    return x._version\n{INPUTS}")


REDUCED = """import torch

def program(x, factor):
    return x.mul_(factor)

def calls(program):
    x = torch.ones(2)
    first = program(x.add_(1), factor=3)
    program(x, 2)
    return locals()
"""


def test_a_reduced_program_is_a_file_with_what_it_passes_first(tmp_path: Path) -> None:
    path, names = tmp_path / "small.py", FileNames()
    path.write_text(REDUCED)
    given = user_file.read(path, names)
    assert isinstance(given, user_file.UserFunction)
    assert isinstance(given.inputs, tuple)
    assert given.notes == ("the first call in calls() is judged",)
    (x,), keywords = given.inputs
    assert (x.tolist(), keywords) == ([2, 2], {"factor": 3})
    assert list(python_programs(path, names, given)) == [PythonProgram(REDUCED)]


def test_a_file_with_other_calls_lacks_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("calls = []\n\ndef program(x):\n    return x\n")
    with pytest.raises(UserError, match="defines no 'inputs'"):
        user_file.read(tmp_path / "mine.py", FileNames())
