"""Gradients: which inputs require them, regions that record none, and inputs that are static."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager as torch_aot_eager
from torch._functorch._aot_autograd.utils import make_boxed_func

from aliasproof.campaigns.publish.reproducer import render
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.formats.stored_graph import StoredGraph
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import ProgramFunction
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
from aliasproof.oracles.observation import observe_eager
from aliasproof.oracles.stage import Stage
from aliasproof.reduction.edits import simplicity
from aliasproof.reduction.instruction_steps import plain_gradients
from aliasproof.targets import aot, aot_eager, gradients
from aliasproof.targets.gradients import requiring_gradients
from aliasproof.targets.registry import target
from aliasproof.targets.target import Build, Function
from aliasproof.user_code.given_path import FileNames
from tests.scripts_here import confirm_here
from tests.short_programs import known_bug, of_vectors
from tests.targets.conftest import defined_by, examined, trial_of

SCALED = """\
v0 = aten.mul.Scalar(x0, 2)
with torch.no_grad():
    v1 = aten.mul.Scalar(v0, 3)
v2 = aten.add.Tensor(v0, v1)
return (v2,)"""
WRITE = "with torch.no_grad():\n    aten.add_.Scalar(x0, 1)\nreturn ()"
PRODUCT = "v0 = aten.mul.Tensor(x0, x1)\nreturn (v0,)"


def kinds(program: Program, *kinds: str) -> Program:
    pairs = zip(program.storages, kinds, strict=True)
    return replace(
        program, storages=tuple(replace(storage, gradient=kind) for storage, kind in pairs)
    )


@pytest.mark.parametrize("name", ["identity", "aot", "reference", "inductor-fx"])
def test_a_region_is_constant_for_the_backward_graph(name: str) -> None:
    found = examined(of_vectors(SCALED, 0), f"{name}:grad")
    assert found.violations == []
    trial = trial_of(found)
    eager, compiled = (seen.outputs[-1] for seen in (trial.eager, trial.target))
    assert str(eager) == str(compiled)


def test_a_region_that_is_dropped_is_a_violation() -> None:
    """A planted mistake that only a gradient shows."""

    def everywhere(function: Function, inputs: Sequence[Tensor]) -> Build:
        assert isinstance(function, ProgramFunction)
        calls = tuple(replace(call, grad=True) for call in function.program.instructions)
        dropped = ProgramFunction(replace(function.program, instructions=calls))
        return aot.build(dropped, inputs, keep_input_mutations=True)

    case, right = Case.of(of_vectors(SCALED, 0)), target("aot:grad")
    wrong = replace(right, build=partial(gradients.build, everywhere))
    found = examine(case, wrong, attribute=False).violations
    assert [(each.oracle, each.place) for each in found] == [("values", "output 1")]
    assert examine(case, replace(target("aot"), build=everywhere)).violations == []


def test_an_input_requires_gradients_as_its_storage_says() -> None:
    def count(*wanted: str) -> int:
        found = examined(kinds(of_vectors(PRODUCT, 0, 1), *wanted), "aot:grad")
        return len(trial_of(found).eager.outputs) - 1

    assert count("computed", "computed") == 2
    assert count("computed", "none") == 1
    assert count("leaf", "none") == 1


def test_a_leaf_is_written_without_gradients_alone() -> None:
    leaf = kinds(of_vectors(WRITE, 0), "leaf")
    assert examined(leaf, "aot:grad").violations == []
    recorded = replace(leaf, instructions=(replace(leaf.instructions[0], grad=True),))
    assert "leaf Variable" in str(examined(recorded, "aot:grad").rejected)


@known_bug
def test_the_epilogue_writes_under_autograd(tmp_path: Path) -> None:
    """AOTAutograd copies contents that were written without gradients, and drops the gradient."""
    program, tested = of_vectors(WRITE, 0), target("aot-epilogue:grad")
    (violation, *_) = examined(program, tested.name).violations
    assert violation.oracle == "values"
    assert examined(program, "aot:grad").violations == []
    script = tmp_path / "script.py"
    script.write_text(render(program, tested, violation, exact=True))
    assert confirm_here(script).shown


def test_a_script_says_which_inputs_require_gradients() -> None:
    program = kinds(of_vectors(PRODUCT, 0, 1), "computed", "none")
    recipe = target("aot:grad").recipe
    text, inputs = gradients.for_program(recipe, program, input_tensors(program))
    assert "return [x0.flatten().requires_grad_().reshape(x0.shape).clone(), x1]" in text
    assert [x.requires_grad for x in inputs] == [True, False]


@known_bug
@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("leaf", "x1.requires_grad_()"),
        ("computed", "x1.flatten().requires_grad_().reshape(x1.shape).clone()"),
    ],
)
def test_a_script_about_simple_inputs_is_short_and_shows_the_same(tmp_path, kind, made):
    """Like the parameters of a model, and values in it; its buffer requires no gradient."""
    bug, tested = known_bugs()["recomputed-from-written"], target("inductor-fx:grad")
    program = kinds(bug.program, "none", kind)
    (violation, *_) = examined(program, tested.name).violations
    text = render(program, tested, violation, exact=True)
    assert f"x0, x1 = inputs\n    return [x0, {made}]" in text
    script = tmp_path / "script.py"
    script.write_text(text)
    assert confirm_here(script).shown


def test_aot_eager_splits_a_joint_graph_as_torch_does() -> None:
    """`torch.compile(backend="aot_eager")` recomputes sin instead of saving it."""
    x, graphs, stages = torch.ones(4, requires_grad=True), list[str](), list[Stage]()

    def noted(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph.code)
        return make_boxed_func(graph.forward)

    for backend in (
        aot_eager.backend(None, stages=stages),
        partial(torch_aot_eager, fw_compiler=noted),
    ):
        torch._dynamo.reset()
        torch.compile(lambda x: x.sin().cos(), backend=backend)(x)
    assert isinstance(stages[0].graph, torch.fx.GraphModule)
    assert stages[0].graph.code == graphs[0]


def test_eager_cannot_be_observed_where_a_foreach_call_is_recorded() -> None:
    body = "aten._foreach_tan_.default([x0])\nreturn ()"
    assert "dispatch mode" in str(examined(of_vectors(body, 0), "identity:grad").rejected)
    unrecorded = body.replace("aten._f", "with torch.no_grad():\n    aten._f")
    assert examined(of_vectors(unrecorded, 0), "identity:grad").rejected is None


def test_zeros_of_autograd_without_memory_are_watched_like_others() -> None:
    """A kernel that reads them under a mode kills the process."""

    def gradient(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            (found,) = torch.autograd.grad((x * 2).sgn(), x, torch.ones_like(x))
        return found

    (output,) = observe_eager(gradient, [torch.ones(4)])[0].outputs
    assert isinstance(output, Tensor)
    assert output.tolist() == [0.0] * 4


# --- inputs that are static for Dynamo, like buffers and parameters -------------------------------


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
