"""The part of a layer at fault: the part without which the difference vanishes."""

import pytest
import torch
from torch._inductor import config

from aliasproof.corpus.bug_files import python_bugs
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.localization import part_of
from aliasproof.judge.python_case import PythonCase
from aliasproof.targets.registry import target as target_named

# torch warns while it traces, and an error there would be another difference.
pytestmark = pytest.mark.filterwarnings("ignore")
BUGS = python_bugs()
PROGRAM = """import torch


def program(x):
    x.mul_(3)
    if x.shape[0] > 2:
        print("a break")
    return x.mul_(2) + 1


def calls(program):
    x = torch.ones(SIZE)
    out = program(x)
    return locals()
"""


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
    program = PythonProgram(PROGRAM.replace("SIZE", str(size)))
    with config.patch(post_grad_custom_post_pass=subtracting):
        symptom = examine(PythonCase(program), target_named("inductor")).symptom
        assert symptom == Symptom("inductor", "values", "wrong value")
        assert part_of(program, symptom) == "Inductor: post_grad_custom_post_pass" + where


RAISING_TWICE = """import torch


def program(w):
    a, b = w.split(2)
    with torch.no_grad():
        a.mul_(2)
    (g,) = torch.autograd.grad((w * w).sum(), w)
    return g, b


def calls(program):
    out = program(torch.arange(4.0).requires_grad_())
    return locals()
"""


def test_an_error_of_a_backend_is_not_that_of_dynamo_after_it():
    """Without a backend that raises, Dynamo continues, and raises itself after the graph break."""
    case = PythonCase(PythonProgram(RAISING_TWICE))
    kinds = {}
    for name in ("dynamo", "aot-eager"):
        symptom = examine(case, target_named(name)).symptom
        assert symptom is not None
        assert symptom.target == name
        kinds[name] = symptom.kind.split()[1].rstrip(":")
    assert kinds == {"dynamo": "InternalTorchDynamoError", "aot-eager": "BackendCompilerFailed"}


def test_nothing_is_blamed_without_a_difference():
    """Without a difference, the first experiment would be reported as the wrong part."""
    program = PythonProgram(PROGRAM.replace("SIZE", "2"))
    assert part_of(program, Symptom("dynamo", "values", "wrong value")) == ""
