"""Python programs in eager and compiled: all differences are reported, with the part at fault."""

import gc
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._inductor import config

from aliasproof.campaigns.publish.python_issue import confirm_python, script
from aliasproof.corpus.bug_files import python_bugs
from aliasproof.faults.python_faults import PYTHON_FAULTS
from aliasproof.generators.python_drawing import sample_python
from aliasproof.ir.errors import Rejected
from aliasproof.ir.python_program import PythonProgram, draws
from aliasproof.judge.attribution import FailsAlike, Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.localization import part_of
from aliasproof.judge.python_case import PythonCase, compare, run_in_eager
from aliasproof.targets.registry import target as target_named
from tests.campaigns.made_findings import finding_of
from tests.short_programs import python_of
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
    x = "torch.ones(2, 2, dtype=torch.complex64).requires_grad_() * 1"
    program = python_of("first, second = x.unbind()\nx.mul_(2)\nreturn first", x)
    assert examine(PythonCase(program), target_named("identity")).violations == []


@pytest.mark.thorough
def test_inductor_draws_the_numbers_that_eager_draws() -> None:
    program = python_of("return torch.nn.functional.dropout(x, 0.5)", "torch.arange(64.0)")
    assert examine(PythonCase(program), target_named("inductor")).main is None
    assert draws(program)
    finding = finding_of(program, "inductor", "values", "wrong value", "out1")
    assert "options={'fallback_random': True}" in script(finding)
    assert not confirm_python(finding).shown
    assert "options" not in script(replace(finding, target="aot-eager"))


# --- the part of a layer at fault: the part without which the difference vanishes -----------------


BUGS = python_bugs()
BREAKS = 'x.mul_(3)\nif x.shape[0] > 2:\n    print("a break")\nreturn x.mul_(2) + 1'


@pytest.mark.parametrize(
    ("identifier", "part"),
    [
        ("object_passed_twice", "Dynamo: guards"),
        ("maximum_is_new", "Dynamo"),
        ("data_of_other_dims", "Dynamo, graph 2 of 2"),
        ("result_twice_from_function", "Dynamo: higher_order_ops"),
        ("recomputed_after_write", "AOTAutograd: min-cut partitioner"),
        ("dirty_input_not_rebased", "AOTAutograd: mutations in the graph"),
        ("outputs_share_backward", "AOTAutograd: wrappers"),
    ],
)
def test_the_part_of_a_known_bug(identifier, part):
    bug = BUGS[identifier]
    symptom = examine(PythonCase(bug.program), target_named(bug.target)).symptom
    assert symptom is not None
    assert part_of(bug.program, symptom) == part


def subtracting(graph):
    """A wrong pass."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.add.Tensor:
            node.target = torch.ops.aten.sub.Tensor


@pytest.mark.thorough
@pytest.mark.parametrize(("size", "where"), [(2, ""), (3, ", graph 2 of 2")])
def test_a_planted_pass_of_inductor_is_named(size, where):
    program = python_of(BREAKS, f"torch.ones({size})")
    with config.patch(post_grad_custom_post_pass=subtracting):
        symptom = examine(PythonCase(program), target_named("inductor")).symptom
        assert symptom == Symptom("inductor", "values", "wrong value")
        assert part_of(program, symptom) == "Inductor: post_grad_custom_post_pass" + where


RAISING_TWICE = """
a, b = x.split(2)
with torch.no_grad():
    a.mul_(2)
(g,) = torch.autograd.grad((x * x).sum(), x)
return g, b
"""


def test_an_error_of_a_backend_is_not_that_of_dynamo_after_it():
    """Without a backend that raises, Dynamo continues, and raises itself after the graph break."""
    case = PythonCase(python_of(RAISING_TWICE, "torch.arange(4.0).requires_grad_()"))
    kinds = {}
    for name in ("dynamo", "aot-eager"):
        symptom = examine(case, target_named(name)).symptom
        assert symptom is not None
        assert symptom.target == name
        kinds[name] = symptom.kind.split()[1].rstrip(":")
    assert kinds == {"dynamo": "InternalTorchDynamoError", "aot-eager": "BackendCompilerFailed"}


def test_nothing_is_blamed_without_a_difference():
    """Without a difference, the first experiment would be reported as the wrong part."""
    program = python_of(BREAKS)
    assert part_of(program, Symptom("dynamo", "values", "wrong value")) == ""
