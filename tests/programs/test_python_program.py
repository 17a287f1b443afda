"""The language of Python programs: what it accepts, and that nothing else can be reached."""

from __future__ import annotations

from typing import Any

import pytest

from aliasproof.programs.errors import Rejected, UserError
from aliasproof.programs.python_program import PythonProgram, limited

PROGRAM = """
import torch

total = torch.zeros(2)

class State:
    shared = 0

def program(x, history=[]):
    global total
    total = total + 1
    State.shared += 1
    history.append(x.add_(1))
    return len(history)

def calls(program):
    x = torch.ones(2)
    count = program(x)
    return locals()
"""


def with_line(line: str) -> str:
    return PROGRAM.replace("    return len(history)", f"    {line}\n    return len(history)")


def test_each_run_has_a_world_of_its_own():
    program = PythonProgram(PROGRAM)
    for _ in range(2):
        left: Any = program.run()
        assert left["count"] == 1
        assert left["total"].tolist() == [1, 1]
        assert left["State.shared"] == 1
        assert left["x"].tolist() == [2, 2]


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "from os import system",
        "import torch as t",
        "open('x')",
        "eval('1')",
        "getattr(x, 'data')",
        "__import__('os')",
        "x.__class__",
        "program.__globals__",
        "torch.load('x')",
        "torch.save(x, 'x')",
        "torch.hub",
        "torch.ops.load_library('x')",
        "torch.from_file('x')",
        "torch.utils.cpp_extension",
        "x.numpy().tofile('x')",
        "torch.os",
        "torch.serialization",
        "'{0}'.format(x)",
        "try: pass\n    except: pass",
        "async def f(): pass",
        "undefined_name",
        "__builtins__ = 1",
        "x = f'{x}'",
        "x := 1",
        "lambda: exec('1')",
    ],
)
def test_what_is_not_in_the_language_is_refused(line: str):
    with pytest.raises(UserError):
        PythonProgram(with_line(line))


def test_both_functions_are_needed():
    with pytest.raises(UserError, match="defines 'calls'"):
        PythonProgram("def program(x):\n    return x\n")


def test_a_loop_without_end_is_rejected():
    source = PROGRAM.replace("history.append(x.add_(1))", "while True: x.add_(1)")
    with pytest.raises(Rejected, match="takes more than"), limited(0.2):
        PythonProgram(source).run()
