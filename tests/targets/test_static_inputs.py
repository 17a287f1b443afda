"""Inputs that are static for Dynamo, like buffers and parameters of a module."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aliasproof.campaigns.publish.reproducer import render
from aliasproof.formats.stored_graph import StoredGraph
from aliasproof.ir.errors import UserError
from aliasproof.ir.lifting import lift_program
from aliasproof.ir.ordinary_syntax import ordinary_inputs
from aliasproof.ir.printing import inputs_source
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps, loads
from aliasproof.ir.values import STATIC, clone_inputs, input_tensors
from aliasproof.judge.examination import examine
from aliasproof.judge.rounding_control import widened
from aliasproof.judge.trial import Case
from aliasproof.minimization import minimize_session
from aliasproof.minimization.minimize_request import MinimizeRequest
from aliasproof.reduction.edits import simplicity
from aliasproof.reduction.instruction_steps import plain_gradients
from aliasproof.targets.gradients import requiring_gradients
from aliasproof.targets.registry import target
from aliasproof.user_code.given_path import FileNames
from tests.scripts_here import confirm_here
from tests.short_programs import known_bug, of_vectors
from tests.targets.conftest import defined_by


def marked(program: Program, *static: bool) -> Program:
    pairs = zip(program.inputs, static, strict=True)
    return replace(program, inputs=tuple(replace(view, static=it) for view, it in pairs))


# AOTAutograd saves a static input in place of its clone, and so reads it after the write.
WRITTEN = of_vectors("aten.add_.Scalar(x0, 1)\nv0 = aten.mul.Tensor(x1, x0)\nreturn (v0,)", 0, 1)
BUFFER = replace(
    WRITTEN, storages=(replace(WRITTEN.storages[0], gradient="none"), WRITTEN.storages[1])
)
ONE = marked(of_vectors("return (x0,)", 0), True)


def static(tensors: object) -> list[bool]:
    assert isinstance(tensors, (list, tuple))
    return [hasattr(tensor, STATIC) for tensor in tensors]


def test_a_program_keeps_which_inputs_are_static() -> None:
    given = [torch.ones(2), torch.ones(2)]
    torch._dynamo.mark_static_address(given[1])
    with torch.no_grad():
        program = lift_program(torch.add, clone_inputs(given)).program
    assert [view.static for view in program.inputs] == [False, True]
    assert loads(dumps(program)) == program
    assert [len(view) for view in json.loads(dumps(program))["inputs"]] == [6, 7]
    with pytest.raises(UserError, match=r"inputs\[1\]\.static: expected true or false"):
        loads(dumps(program).replace('"static": true', '"static": "yes"'))


@pytest.mark.parametrize("program", [marked(WRITTEN, True, False), ONE])
def test_tensors_of_a_static_input_are_static(program: Program) -> None:
    tensors, expected = input_tensors(program), [view.static for view in program.inputs]
    made = [tensors, clone_inputs(tensors), widened(tensors), requiring_gradients(tensors)]
    texts = inputs_source(program), ordinary_inputs(program)
    made += [defined_by(text)["inputs"]() for text in texts]
    assert [*map(static, made)] == [expected] * len(made)


def test_an_input_that_is_not_static_is_plainer() -> None:
    program = marked(BUFFER, True, True)
    plainest, *others = plain_gradients(program)
    assert not any(view.static for view in plainest.inputs)
    assert all(storage.gradient == "computed" for storage in plainest.storages)
    assert marked(BUFFER, False, True) in others
    assert simplicity(marked(BUFFER, False, True)) < simplicity(program)
    # A parameter or a buffer is not computed.
    assert BUFFER.storages in [it.storages for it in others]
    assert all(it.storages == BUFFER.storages for it in others)


@known_bug
@pytest.mark.parametrize("name", ["aot-eager:grad", "inductor-fx:grad"])
def test_a_failure_that_needs_a_static_input_shows(name: str) -> None:
    tested = target(name)
    assert examine(Case.of(BUFFER), tested, attribute=False).violations == []
    found = examine(Case.of(marked(BUFFER, True, False)), tested, attribute=False)
    assert [it.oracle for it in found.violations] == ["values"]


@known_bug
def test_a_script_marks_the_static_inputs(tmp_path: Path) -> None:
    program, tested = marked(BUFFER, True, False), target("aot-eager:grad")
    (violation,) = examine(Case.of(program), tested, attribute=False).violations
    text = render(program, tested, violation, exact=True)
    assert "    torch._dynamo.mark_static_address(x)\n    return x, y" in text
    (script := tmp_path / "script.py").write_text(text)
    assert confirm_here(script).shown


@known_bug
def test_minimize_finds_the_difference_of_a_stored_graph(tmp_path: Path) -> None:
    graph = torch.fx.symbolic_trace(lambda x, y: (x.add_(1), y * x)[1])
    inputs = torch.ones(2), torch.ones(2, requires_grad=True)
    torch._dynamo.mark_static_address(inputs[0])
    StoredGraph(graph, inputs).write(folder := tmp_path / "graph")
    request = MinimizeRequest(folder, FileNames("f"), "aot-eager:grad", None, None)
    subject = minimize_session.begin(request)
    assert minimize_session.find(subject.program, request).kept.symptom.oracle == "values"
