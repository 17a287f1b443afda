"""Recipes: the source in a reproducer does the same as the target's `build`."""

import ast
import sys
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.parsing import parse_source
from aliasproof.ir.program import Input, Program, Storage
from aliasproof.ir.values import clone_inputs, input_tensors
from aliasproof.targets.registry import target
from aliasproof.targets.target import Function, Target
from tests.short_programs import known_bug, program_of, view
from tests.targets.conftest import RIGHT, defined_by, ends, printed


def recipe(tested: Target) -> Callable[[Function, Sequence[Tensor]], Function]:
    compiled: Callable[[Function, Sequence[Tensor]], Function]
    compiled = defined_by(tested.recipe)["compiled"]
    return compiled


def test_a_recipe_needs_torch_alone_and_what_it_accuses(tested: Target) -> None:
    modules = [
        name.split(".")[0]
        for node in ast.walk(ast.parse(tested.recipe))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [imported.name for imported in node.names]
        )
    ]
    own = {"aliasproof"} if tested.name.startswith("reference") else set()
    assert set(modules) <= {"torch"} | own | sys.stdlib_module_names


def test_a_recipe_runs_right_functions_right(right: Function, tested: Target) -> None:
    if tested.name == "aot-inductor" and right is RIGHT["a chain of views"]:
        pytest.skip("documented: a view of a written input is one of new contents, with its layout")
    matrix = torch.arange(1.0, 10).view(3, 3)
    inputs = [matrix, -matrix]
    compiled = recipe(tested)(right, clone_inputs(inputs))
    assert ends(compiled, clone_inputs(inputs)) == ends(right, clone_inputs(inputs))


def test_a_recipe_does_what_build_does(direct: Target) -> None:
    for seed in range(10):
        for program in sample(swarm(seed), seed, 3 if direct.cost == 1 else 1):
            check_recipe(direct, program)


def check_recipe(tested: Target, program: Program) -> None:
    function = ProgramFunction(program)

    def built(*inputs: Tensor) -> object:
        compiled = tested.build(function, input_tensors(program)).function
        torch.manual_seed(0)  # both draw the same numbers
        return compiled(*inputs)

    def by_recipe(*inputs: Tensor) -> object:
        compiled = recipe(tested)(printed(program), input_tensors(program))
        torch.manual_seed(0)
        return compiled(*inputs)

    assert ends(by_recipe, input_tensors(program)) == ends(built, input_tensors(program))


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [((2, 3), (6, 2)), ((2, 3), (1, 2)), ((2, 3), (0, 1)), ((2, 2), (1, 1)), ((2, 1), (1, 5))],
)
def test_a_recipe_does_what_build_does_for_inputs_of_any_layout(direct, sizes, strides):
    for call in ("aten.neg.default(x0)", "aten.clone.default(x0)", "aten.flatten.using_ints(x0)"):
        body = f"v0 = {call}\nv1 = aten.reshape.default(v0, [-1])\nreturn v0, v1"
        check_recipe(direct, program_of(body, view(*sizes, strides=strides)))


@pytest.mark.parametrize(
    "call", ["aten.squeeze_.dims(x0, [1])", "aten.transpose_.default(x0, 0, 1)"]
)
def test_a_recipe_does_what_build_does_if_an_input_gets_another_layout(direct, call):
    check_recipe(direct, program_of(f"{call}\nreturn ()", view(2, 1)))


@pytest.mark.parametrize("name", ["reference", "reference-copy", "reference-planned"])
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("strides", ["[2, 1]", "[]"])
def test_a_recipe_sets_a_tensor_to_a_place_in_a_storage(name, offset, strides):
    call = f"aten.set_.source_Tensor_storage_offset(x, y, {offset}, [1, 2], {strides})"
    views = [Input(each, i, torch.float32, (2,), (1,), i) for i, each in enumerate("xy")]
    text = f"def program(x, y):\n    {call}\n    v0 = aten.neg.default(x)\n    return x, v0\n"
    program = parse_source(text, (Storage(torch.float32, 8),) * 2, tuple(views))
    check_recipe(target(name), program)
    compiled = recipe(target(name))(printed(program), input_tensors(program))
    assert ends(compiled, input_tensors(program)) == ends(
        ProgramFunction(program), input_tensors(program)
    )


@known_bug
@pytest.mark.parametrize("name", ["functionalize", "fx-reinplace", "aot", "aot-epilogue"])
def test_a_recipe_shows_the_bugs_of_its_target(name: str) -> None:
    def program(x: Tensor) -> Tensor:
        x.expand(3, 4).zero_()
        return x + 0

    wrong = recipe(target(name))(program, [torch.arange(4.0)])(torch.arange(4.0))
    output = wrong[0] if isinstance(wrong, (list, tuple)) else wrong
    assert torch.as_tensor(output).tolist() != [0] * 4
