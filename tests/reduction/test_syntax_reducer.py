"""Reduction of Python programs on their syntax."""

import ast
from dataclasses import replace

from aliasproof.ir.python_program import PythonProgram
from aliasproof.processes.outcome import Returned, outcome_here
from aliasproof.reduction.reducer import Reducer
from aliasproof.reduction.syntax_passes import PLAINER_PARTS, PYTHON, size
from aliasproof.reduction.syntax_trees import Edit

PROGRAM = """
import torch

shared = torch.ones(2)

def helper(v, w):
    v.mul_(w)
    return v

class State:

    def __init__(self, first):
        self.first = first

def program(a0, box, obj):
    t1 = a0 + 1
    for i in range(2):
        with torch.no_grad():
            obj.first.add_(1)
    if a0.dim() == 1:
        r2 = helper(t1, box[0])
    return [r2, t1.sum()]

def calls(program):
    x1 = torch.arange(12.0).reshape(2, 6)[0]
    x2 = torch.ones(6)
    obj = State(x1)
    out = program(x2, [x2, x1], obj)
    second = program(x2, [x1], obj)
    return locals()
"""


def runs(program: PythonProgram) -> bool:
    return outcome_here(program.run).__class__ is Returned


def reduced(*needed: str) -> PythonProgram:
    """The smallest program that runs and has these texts."""
    start = PythonProgram(PROGRAM)
    problem = replace(PYTHON, most=2000)
    return Reducer(
        problem, start, lambda it: all(text in it.source for text in needed) and runs(it)
    ).run()


def test_a_branch_in_place_of_its_block_may_be_shorter_than_the_body():
    branches = "".join(f"        t{index} = a0 + {index}\n" for index in range(1, 5))
    source = f"""
import torch

def program(a0, b):
    if b:
{branches}    else:
        t1 = a0 - 1
    return [t1]

def calls(program):
    out = program(torch.ones(2), False)
    return locals()
"""

    def needed(it: PythonProgram) -> bool:  # the body is whole, or the block is gone
        return "a0 - 1" in it.source and ("t4" in it.source or "if b" not in it.source)

    program = Reducer(PYTHON, PythonProgram(source), needed).run()
    assert "if b" not in program.source
    assert "a0 - 1" in program.source


def test_only_what_is_needed_is_left():
    program = reduced(".add_(1)")
    assert program.lines <= 7
    assert "for" not in program.source
    assert "helper" not in program.source


def test_a_function_is_written_out_where_it_is_called():
    program = reduced("r2 = ")
    assert program.lines <= 8
    assert "helper" not in program.source
    assert "State" not in program.source


def test_each_result_is_smaller_and_valid():
    seen: list[PythonProgram] = []

    def noted(program: PythonProgram) -> bool:
        seen.append(program)
        return runs(program)

    start = PythonProgram(PROGRAM)
    end = Reducer(PYTHON, start, noted).run()
    assert size(end) < size(start)
    assert len(seen) == len({it.source for it in seen})


def test_every_pass_offers_something():
    tree = ast.parse(PROGRAM)
    assert all(edits(tree) for edits in PLAINER_PARTS)


def test_a_larger_program_is_not_taken():
    start = PythonProgram(ast.unparse(ast.parse(PROGRAM)) + "\n")

    def add_a_statement(program: PythonProgram) -> list[Edit]:
        return [lambda tree: tree.body.extend(ast.parse("more = 1").body)]

    reducer = Reducer(replace(PYTHON, groups=((add_a_statement,),)), start, lambda program: True)
    assert reducer.run() == start
    assert reducer.tried == 0
