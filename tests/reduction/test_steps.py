"""The steps: each offers what its name says, and only simpler programs, for all kinds."""

import inspect
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from aliasproof.ir.program import Instruction, Program, Ref
from aliasproof.reduction import input_steps, instruction_steps
from aliasproof.reduction.edits import is_simpler, simplicity
from aliasproof.reduction.program_steps import STEPS

# --- every step on sampled programs ---------------------------------------------------------------


def test_no_step_is_forgotten() -> None:
    public = {
        function
        for module in (instruction_steps, input_steps)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert set(STEPS) == public
    assert len(STEPS) == len(public)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about candidates
@pytest.mark.parametrize("step", STEPS)
def test_every_step_offers_simpler_programs(step, drawn: list[Program], is_valid) -> None:
    programs = 0
    for program in drawn:
        candidates = list(step(program))
        # A use can be any earlier value, and programs from rules have up to a hundred calls.
        assert len(candidates) < max(1200, len(program) ** 2)
        if programs < 5:
            key = simplicity(program)
            some = candidates[:: len(candidates) // 20 + 1]
            programs += any(is_simpler(it, key) and is_valid(it) for it in some)
    assert programs == 5


@pytest.mark.parametrize("step", STEPS)
def test_every_step_repeats_itself(step, drawn: list[Program]) -> None:
    for program in drawn[:30]:
        assert list(step(program)) == list(step(program))


@pytest.mark.parametrize("step", STEPS)
def test_the_empty_program_has_nothing_to_offer(step) -> None:
    empty = Program((), (), (), ())
    assert all(candidate == empty for candidate in step(empty))


# --- what each step is for ------------------------------------------------------------------------

BY_NAME = {step.__name__: step for step in STEPS}
X = ((4,),)
FULL = "v0 = aten.neg.default(x0)\nv1 = aten.mul.Tensor(v0, x0)\nreturn v0, v1"

# A step, a program of two vectors, and the candidates of the step.
OF_VECTORS = """
drop_result_names: v0 = aten.neg_.default(x0); return (v0,) --> aten.neg_.default(x0); return (x0,)
drop_result_names: v0 = aten.neg.out(x0, out=x1); v1 = aten.abs.default(v0); return (v1,)
    --> aten.neg.out(x0, out=x1); v1 = aten.abs.default(x1); return (v1,)
simplify_ops: aten.lerp_.Scalar(x0, x1, 2) --> aten.add_.Scalar(x0, 1)
simplify_ops: aten.lerp_.Scalar(x0, x1, 2) --> aten.copy_.default(x0, x1)
simplify_ops: v0 = aten.t.default(x0); return (v0,) --> v0 = aten.alias.default(x0); return (v0,)
simplify_ops: v0 = aten.mul.Tensor(x0, x1) --> v0 = aten.add.Tensor(x0, x1)
drop_arguments: aten.sub_.Tensor(x0, x1, alpha=2) --> aten.sub_.Tensor(x0, x1)
drop_arguments: aten.clamp_.default(x0, 1, 2) --> aten.clamp_.default(x0, 1)
simplify_constants: aten.add_.Scalar(x0, 5) --> aten.add_.Scalar(x0, 0)
simplify_constants: aten.add_.Scalar(x0, -5) --> aten.add_.Scalar(x0, 5)
simplify_constants: v0 = aten.flip.default(x0, [-1]) --> v0 = aten.flip.default(x0, [0])
simplify_constants: v0 = aten.expand.default(x0, [3, 4]) --> v0 = aten.expand.default(x0, [2, 4])
rewire_uses: v0 = aten.neg.default(x1); aten.add_.Tensor(v0, v0); return (v0,)
    --> v0 = aten.neg.default(x1); aten.add_.Tensor(x0, x0); return (v0,)
rewire_uses: return (x1,) --> return (x0,)
"""


@pytest.mark.parametrize("line", OF_VECTORS.replace("\n    ", " ").strip().splitlines())
def test_a_step_offers_what_it_is_for(program, line: str) -> None:
    name, texts = line.split(": ")
    before, wanted = (
        program(text if "return" in text else f"{text}\nreturn ()", (4,), (4,))
        for text in texts.replace("; ", "\n").split(" --> ")
    )
    assert without_layouts(wanted) in map(without_layouts, BY_NAME[name](before))


OFFERS = [
    ("cut_tail", FULL, X, "v0 = aten.neg.default(x0)\nreturn (v0,)", X),
    ("drop_instructions", FULL, X, "v0 = aten.neg.default(x0)\nreturn v0, v0", X),
    ("drop_instructions", FULL, X, "v1 = aten.mul.Tensor(x0, x0)\nreturn x0, v1", X),
    ("drop_instructions", FULL, X, "return ()", X),
    ("slice_outputs", FULL, X, FULL.replace("v0, v1", "(v1,)"), X),
    ("slice_outputs", FULL, X, FULL.replace("v0, v1", "()"), X),
    ("drop_outputs", FULL, X, FULL.replace("v0, v1", "(v0,)"), X),
    (
        "plain_gradients",
        "with torch.no_grad():\n        v0 = aten.neg.default(x0)\nreturn (v0,)",
        X,
        "v0 = aten.neg.default(x0)\nreturn (v0,)",
        X,
    ),
    ("shrink_sizes", "return (x0,)", ((4,),), "return (x0,)", ((1,),)),
    ("shrink_sizes", "return (x0,)", ((4, 4),), "return (x0,)", ((2, 2),)),
    ("shrink_sizes", "return (x0,)", ((4, 4),), "return (x0,)", ((4, 3),)),
    (
        "shrink_sizes",
        "v0 = aten.expand.default(x0, [3, 4])\nreturn (v0,)",
        X,
        "v0 = aten.expand.default(x0, [3, 2])\nreturn (v0,)",
        ((2,),),
    ),
    (
        "shrink_sizes",
        "v0 = aten.view.default(x0, [12])\nreturn (v0,)",
        ((4, 3),),
        "v0 = aten.view.default(x0, [3])\nreturn (v0,)",
        ((1, 3),),
    ),
    ("drop_dimensions", "return x0, x1", ((4, 2), (4, 3)), "return x0, x1", ((4,), (4,))),
    ("drop_dimensions", "return x0, x1", ((4, 2), (4, 3)), "return x0, x1", ((4, 2), (3,))),
]


@pytest.mark.parametrize(("name", "before", "shapes", "after", "other_shapes"), OFFERS)
def test_a_step_offers_other_outputs_and_shapes(program, name, before, shapes, after, other_shapes):
    wanted = program(after, *other_shapes)
    offered = BY_NAME[name](program(before, *shapes))
    assert without_layouts(wanted) in map(without_layouts, offered)


def test_an_epsilon_does_not_become_zero(program) -> None:
    call = "aten._native_batch_norm_legit.no_stats(x0, x1, x1, True, 0.5, 1.5)"
    before = program(f"v0, v1, v2 = {call}\nreturn (v0,)", (4, 2), (2,))
    last = {str(it.instructions[0].args[-1]) for it in BY_NAME["simplify_constants"](before)}
    assert last == {"1.5", "1.0", "2.0"}


def without_layouts(program: Program) -> Program:
    """The program without strides and lengths, which `simplify_layouts` changes."""
    inputs = tuple(replace(view, strides=()) for view in program.inputs)
    storages = tuple(replace(storage, length=0) for storage in program.storages)
    return replace(program, inputs=inputs, storages=storages)


@pytest.fixture
def sharing(program: Callable[..., Program]) -> Program:
    """Two inputs in one storage of eight elements, and a storage that no input views."""
    apart = program("aten.add_.Tensor(x0, x1)\nreturn (x1,)", (4,), (4,))
    inputs = (apart.inputs[0], replace(apart.inputs[1], storage=0, offset=2))
    return replace(
        apart,
        inputs=inputs,
        storages=(replace(apart.storages[0], length=8), apart.storages[1]),
        seed=3,
    )


def test_separate_storages_gives_an_input_its_own(sharing: Program, is_valid) -> None:
    offered = list(input_steps.separate_storages(sharing))
    assert [[view.storage for view in candidate.inputs] for candidate in offered] == [
        [2, 0],
        [0, 2],
    ]
    assert all(map(is_valid, offered))


def test_drop_inputs_puts_another_in_its_place(sharing: Program) -> None:
    assert any(
        candidate.instructions == (Instruction("aten.add_.Tensor", (Ref("x0"), Ref("x0"))),)
        and candidate.outputs == ("x0",)
        for candidate in input_steps.drop_inputs(sharing)
    )


def test_simplify_layouts_moves_and_cuts(sharing: Program) -> None:
    offered = list(input_steps.simplify_layouts(sharing))
    assert any(candidate.inputs[1].offset == 0 for candidate in offered)
    assert any(candidate.inputs[1].offset == 1 for candidate in offered)
    assert any(candidate.storages[0].length == 6 for candidate in offered)
    strided = replace(
        sharing, inputs=(replace(sharing.inputs[0], sizes=(2,), strides=(3,)), sharing.inputs[1])
    )
    strides = {candidate.inputs[0].strides for candidate in input_steps.simplify_layouts(strided)}
    assert {(1,), (2,)} <= strides


def test_simplify_dtypes_keeps_views_of_another_dtype(program) -> None:
    start = program("return x0, x1", (4,), (2,), dtype=torch.complex64)
    reinterpreted = replace(start.inputs[1], storage=0, dtype=torch.bool)
    start = replace(start, inputs=(start.inputs[0], reinterpreted))
    offered = {
        tuple(view.dtype for view in candidate.inputs)
        for candidate in input_steps.simplify_dtypes(start)
    }
    assert {(torch.float32, torch.bool), (torch.int64, torch.bool)} <= offered
    assert {view for _, view in offered} == {torch.bool}


def test_simplify_seed_goes_to_zero(sharing: Program) -> None:
    (offered,) = input_steps.simplify_seed(sharing)
    assert offered == replace(sharing, seed=0)


def test_results_become_inputs_of_the_same_layout(program, is_valid) -> None:
    start = program(
        "v0 = aten.neg.default(x0)\nv1 = aten.t.default(v0)\naten.zero_.default(v1)\nreturn (v1,)",
        (2, 3),
    )
    first, second = instruction_steps.results_to_inputs(start)
    assert (first.inputs[1].name, first.inputs[1].sizes, first.inputs[1].strides) == (
        "v0",
        (2, 3),
        (3, 1),
    )
    assert (second.inputs[1].name, second.inputs[1].sizes, second.inputs[1].strides) == (
        "v1",
        (3, 2),
        (1, 3),
    )
    assert [call.op for call in second.instructions] == ["aten.neg.default", "aten.zero_.default"]
    assert is_valid(first)
    assert is_valid(second)
