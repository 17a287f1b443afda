"""Passes on the syntax of Python programs: the edits of each of them."""

import ast
import re
from collections.abc import Callable, Sequence

import pytest

from aliasproof.reduction import syntax_passes
from aliasproof.reduction.syntax_trees import Edit, is_complete

CALLS = """
def calls(program):
    out = program(torch.ones(2))
    return locals()
"""

# A title, a pass, and a program before and after one of its edits.
TEXT = """
# a function: inline_calls
def f(v, w):
    v.add_(w)
    return v
def program(x):
    y = f(x, 1)
    return y
-->
def program(x):
    x.add_(1)
    y = x
    return y

# an argument that is read twice: inline_calls
def f(v):
    return v + v
def program(x):
    return f(x * 2)
-->
def program(x):
    v = x * 2
    return v + v

# a lambda: inline_calls
def program(x):
    f = lambda v: v.add_(1)
    y = f(x)
-->
def program(x):
    y = x.add_(1)

# a method: inline_calls
class A:
    def m(self, v):
        self.n = v
def program(x, a):
    a.m(x)
-->
class A:
    pass
def program(x, a):
    a.n = x

# a module: inline_calls
class A:
    def forward(self, v):
        return v + self.n
def program(x, a):
    return a(x)
-->
class A:
    pass
def program(x, a):
    return x + a.n

# a range: unroll_loops
def program(x):
    for i in range(2):
        x.add_(i)
-->
def program(x):
    x.add_(0)
    x.add_(1)

# pairs of rows: unroll_loops
def program(x):
    for a, b in zip(x, x.unbind()):
        a.add_(b)
-->
def program(x):
    x[0].add_(x[0])

# a comprehension: unroll_loops
def program(x):
    return [row + 1 for row in reversed(x)]
-->
def program(x):
    return [x[-1] + 1]

# a single result: shorten_results
def program(x):
    return {'a': x, 'b': 1}
def calls(program):
    out = program(1)
    y = out['a'] + 1
-->
def program(x):
    return x
def calls(program):
    out = program(1)
    y = out + 1

# a return after a block: inline_names
def program(x):
    with torch.no_grad():
        y = x[0]
    return y + 1
-->
def program(x):
    with torch.no_grad():
        return x[0] + 1

# a second name: inline_names
def program(x):
    y = x
    y.add_(y)
-->
def program(x):
    x.add_(x)

# all that is unused: drop_unused
import dataclasses
unused = 1
class A:
    m = 1
    def __init__(self, v):
        self.first, self.count = 1, 2
        self.last = v
def f():
    pass
def program(x, y):
    z = x + y
    w = x + 1
    return w
-->
def program(x):
    w = x + 1
    return w

# an object: spread_arguments
class Box(torch.nn.Module):
    more = 1

    def __init__(self, value):
        super().__init__()
        self.first = value
        self.register_buffer("buffer", torch.ones(2))
def program(box):
    box.first.add_(box.buffer)
def calls(program):
    x = torch.ones(2)
    b = Box(x)
    program(b)
    b.first.t()
-->
def program(box_first, box_buffer):
    box_first.add_(box_buffer)
def calls(program):
    x = torch.ones(2)
    b_buffer = torch.ones(2)
    program(x, b_buffer)
    x.t()

# a dict: spread_arguments
def program(box):
    box['a'].add_(1)
def calls(program):
    program({'a': 1, 'b': 2})
-->
def program(box_a):
    box_a.add_(1)
def calls(program):
    program(1)

# a global: pass_globals
g = torch.ones(2)
def program(x):
    x.add_(g)
def calls(program):
    program(1)
-->
def program(x, g):
    x.add_(g)
def calls(program):
    program(1, torch.ones(2))

# a handler: unwrap_blocks
def program(x):
    try:
        x.add_(1)
    except RuntimeError:
        x.mul_(2)
-->
def program(x):
    x.mul_(2)

# a tensor: simplify_tensors
x = torch.arange(6.0).reshape(2, 3)[0]
-->
x = torch.ones(2)[0]

# an operand: simplify_expressions
y = torch.mul(x, 2)
-->
y = x
"""


CASES = dict(case.split("\n", 1) for case in re.split(r"^# ", TEXT, flags=re.MULTILINE)[1:])


def text_of(source: str) -> str:
    return ast.unparse(ast.parse(source))


def results(edits: Callable[[ast.Module], Sequence[Edit]], source: str) -> list[str]:
    """The program after each edit of a pass that applies."""
    made = []
    for index in range(len(edits(ast.parse(source)))):
        tree = ast.parse(source)
        try:
            edits(tree)[index](tree)
        except (LookupError, AssertionError):
            continue
        made.append(ast.unparse(ast.fix_missing_locations(tree)))
    return made


@pytest.mark.parametrize("case", CASES)
def test_a_pass_offers_the_smaller_program(case: str) -> None:
    edits, text = getattr(syntax_passes, case.split(": ")[1]), CASES[case]
    before, after = text.split("-->")
    if "def calls" not in text:
        before, after = before + CALLS, after + CALLS
    found = results(edits, before)
    assert text_of(after) in found, "\n\n".join(found)


@pytest.mark.parametrize(
    "body",
    [
        "y = x.view(-1)\n    return y",
        "for row in x:\n        row.add_(1)\n    return row",
        "def inner():\n        nonlocal y\n        y = x\n    y = 1\n    inner()\n    return y",
        "return [it + x for it in x]",
        "f = lambda v: v + x\n    return f(x)",
        "return later(x)",
        "with torch.no_grad():\n        a, *b = x\n    return a, b",
        "try:\n        y = x\n    except RuntimeError:\n        y = 1\n    return y",
    ],
)
def test_a_program_that_binds_its_names_is_complete(body: str) -> None:
    later = "def later(v):\n    return v\n"
    assert is_complete(ast.parse(f"import torch\ndef program(x):\n    {body}\n{later}{CALLS}"))


@pytest.mark.parametrize(
    "body",
    [
        "return y",
        "y.add_(1)\n    y = x",
        "y += 1",
        "return [other + x for it in x]",
        "f = lambda v: v + w\n    return f(x)",
        "return it\n    [it for it in x]",
        "try:\n        y = x\n    except RuntimeError:\n        z = w\n    return y",
    ],
)
def test_a_program_that_reads_what_nothing_binds_is_refused(body: str) -> None:
    assert not is_complete(ast.parse(f"def program(x):\n    {body}\n{CALLS}"))


def test_a_call_with_another_number_of_arguments_is_refused() -> None:
    assert not is_complete(ast.parse(f"def program():\n    pass\n{CALLS}"))
