"""Python programs in eager and compiled: all differences are reported, and nothing else."""

import gc
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from aliasproof.campaigns.publish.python_issue import confirm_python, script
from aliasproof.faults.python_faults import PYTHON_FAULTS
from aliasproof.generators.python_drawing import sample_python
from aliasproof.ir.errors import Rejected
from aliasproof.ir.python_program import PythonProgram, draws
from aliasproof.judge.attribution import FailsAlike, Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.python_case import PythonCase, compare, run_in_eager
from aliasproof.targets.registry import target as target_named
from tests.campaigns.made_findings import finding_of
from tests.wrong_python import WRONG

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of torch about odd programs

RIGHT = WRONG.replace(".expand(3, 4)", "")


def test_the_first_layer_that_is_wrong_is_named_with_the_place():
    examination = examine(PythonCase(PythonProgram(WRONG)), target_named("aot-eager"))
    assert examination.main is not None
    assert (examination.main.oracle, examination.main.place) == ("values", "base")
    assert examination.symptom == Symptom("aot-eager", "values", "wrong value")
    fails = FailsAlike(examination.symptom)
    assert fails(PythonProgram(WRONG))
    assert not fails(PythonProgram(RIGHT))
    assert not fails(PythonProgram(WRONG.replace("3, 4", "7, 9")))  # eager refuses it
    assert fails.compiled == 2


@pytest.mark.parametrize("target", ["identity", "aot-eager", "reference"])
def test_a_right_program_holds(target: str):
    assert examine(PythonCase(PythonProgram(RIGHT)), target_named(target)).violations == []


def test_eager_again_never_differs():
    for program in sample_python(7, range(60)):
        try:
            assert examine(PythonCase(program), target_named("identity")).violations == []
        except Rejected:
            continue


@pytest.mark.thorough
def test_every_planted_fault_is_found_by_what_it_does():
    """30 wrong compilers; most are found within 150 programs, rare ones within 1,500."""
    assert len(PYTHON_FAULTS) >= 25
    left = dict(PYTHON_FAULTS)
    for program in sample_python(1, range(1500)):
        try:
            eager = run_in_eager(program)
        except Rejected:
            continue
        for fault in list(left.values()):
            main = next(iter(compare(program, fault.make, eager)), None)
            if main is not None and re.search(fault.shows, main.kind):
                del left[fault.name]
        if not left:
            break
    assert left == {}


LEAKS = """
import torch

def program(x, y):
    with torch.inference_mode():
        y.copy_(x.detach())

def calls(program):
    program(torch.ones(2).requires_grad_(), torch.ones(2))
    return locals()
"""


def test_a_run_that_raises_leaves_no_inference_mode_to_the_next_one():
    assert examine(PythonCase(PythonProgram(LEAKS)), target_named("aot-eager")).main is not None
    assert not torch.is_inference_mode_enabled()
    gc.collect()
    assert torch.ones(2).tolist() == [1, 1]  # with other dispatch keys, no call of a tensor works
    assert examine(PythonCase(PythonProgram(RIGHT)), target_named("aot-eager")).violations == []


STATE = """
import torch

class State:
    pass

def program(state):
    state.first, state.second = 1, torch.ones(2)

def calls(program):
    state = State()
    out = program(state)
    return locals()
"""


@pytest.mark.parametrize(
    ("wrong", "kind", "place"),
    [
        (lambda state: setattr(state, "first", 1), "something is missing", "state.second"),
        (
            lambda state: state.__dict__.update(first=1, second=torch.ones(2), third=3),
            "something is new",
            "state.third",
        ),
        (
            lambda state: state.__dict__.update(second=torch.ones(2), first=1),
            "another order",
            "state.first",
        ),
        (
            lambda state: state.__dict__.update(first=1, second=torch.ones(2, requires_grad=True)),
            "another type, or gradients",
            "state.second",
        ),
    ],
)
def test_what_is_there_is_compared(wrong: Callable[[Any], object], kind: str, place: str):
    program = PythonProgram(STATE)
    main = compare(program, lambda _: wrong, run_in_eager(program))[0]
    assert (main.oracle, main.kind, main.place) == ("structure", kind, place)


GRADIENT = """
import torch

def program(x):
    return x.prod(1)

def calls(program):
    x = torch.ones(4, 3).t().requires_grad_()
    gradient, = torch.autograd.grad(program(x).sum(), x)
    return locals()
"""


def test_strides_of_gradients_are_not_compared():
    """Eager gives this gradient the layout of its input, and AOTAutograd makes it contiguous."""
    assert examine(PythonCase(PythonProgram(GRADIENT)), target_named("aot-eager")).violations == []


def test_a_view_that_autograd_forbids_to_use_is_compared():
    """It is one of several views that a call returned, and its base was written."""
    program = PythonProgram("""import torch


def program(x):
    first, second = x.unbind()
    x.mul_(2)
    return first


def calls(program):
    x = torch.ones(2, 2, dtype=torch.complex64).requires_grad_() * 1
    out = program(x)
    return locals()
""")
    assert examine(PythonCase(program), target_named("identity")).violations == []


DROPPED = """
import torch

def program(x):
    return torch.nn.functional.dropout(x, 0.5)

def calls(program):
    out = program(torch.arange(64.0))
    return locals()
"""


@pytest.mark.thorough
def test_inductor_draws_the_numbers_that_eager_draws() -> None:
    program = PythonProgram(DROPPED)
    assert examine(PythonCase(program), target_named("inductor")).main is None
    assert draws(program)
    finding = finding_of(program, "inductor", "values", "wrong value", "out")
    assert "options={'fallback_random': True}" in script(finding)
    assert not confirm_python(finding).shown
    assert "options" not in script(replace(finding, target="aot-eager"))
