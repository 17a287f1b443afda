"""The steps: each offers what its name says, and simpler programs, on programs of every kind."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from aliasproof.ir.program import Instruction, Program, Ref
from aliasproof.reduction import input_steps, instruction_steps
from aliasproof.reduction.edits import Simplicity, is_simpler, simplicity
from aliasproof.reduction.program_steps import STEPS, ReductionStep

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


MOST_OF_A_PROGRAM = 60  # candidates that are validated, of up to a thousand


@pytest.mark.parametrize("step", STEPS)
def test_every_step_offers_simpler_programs(step, drawn: list[Program], is_valid) -> None:
    counts: Counter[str] = Counter()
    for program in drawn:
        candidates = list(step(program))
        some = candidates[:: len(candidates) // MOST_OF_A_PROGRAM + 1]
        valid = list(filter(is_valid, some))
        key = simplicity(program)
        simpler = [candidate for candidate in valid if is_simpler(candidate, key)]
        counts.update(candidates=len(candidates), simpler=len(simpler), programs=bool(simpler))
        # A use can be any earlier value, and programs from rules have up to a hundred calls.
        assert len(candidates) < max(1200, len(program) ** 2)
    assert counts["programs"] >= 5, counts


def why_useless(
    step: ReductionStep, programs: list[Program], is_valid: Callable[[Program], bool]
) -> str | None:
    """Why the reducer can accept no candidate of a step on these programs; None if it can."""
    reason = "it offers no valid candidate"
    for program in programs:
        before = simplicity(program)
        for candidate in filter(is_valid, step(program)):
            after = simplicity(candidate)
            if after < before:
                return None
            changes = zip(Simplicity._fields, before, after, strict=True)
            first = next((change for change in changes if change[1] != change[2]), None)
            if first is None:
                reason = "its candidates have the same key"
            else:
                reason = (
                    f"the first key that it changes, '{first[0]}', goes {first[1]} -> {first[2]}"
                )
    return f"step '{step.__name__}' never lowers `simplicity`: {reason}"


@pytest.mark.parametrize("step", STEPS)
def test_every_step_can_lower_the_key(step, drawn: list[Program], is_valid) -> None:
    reason = why_useless(step, drawn, is_valid)
    assert reason is None, reason


def offer_nothing(program: Program) -> Iterator[Program]:
    yield from ()


def offer_the_same(program: Program) -> Iterator[Program]:
    yield program.renamed()


def repeat_an_output(program: Program) -> Iterator[Program]:
    yield replace(program, outputs=program.outputs + program.outputs[-1:])


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (offer_nothing, "no valid candidate"),
        (offer_the_same, "the same key"),
        (repeat_an_output, "'outputs', goes 1 -> 2"),
    ],
)
def test_a_useless_step_and_its_key_are_named(program, is_valid, step, reason: str) -> None:
    start = program("aten.zero_.default(x0)\nreturn (x0,)", (4,))
    complaint = why_useless(step, [start], is_valid)
    assert complaint is not None
    assert step.__name__ in complaint
    assert reason in complaint


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
XY = ((4,), (4,))
FULL = "v0 = aten.neg.default(x0)\nv1 = aten.mul.Tensor(v0, x0)\nreturn v0, v1"

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
    (
        "drop_result_names",
        "v0 = aten.neg_.default(x0)\nreturn (v0,)",
        X,
        "aten.neg_.default(x0)\nreturn (x0,)",
        X,
    ),
    (
        "drop_result_names",
        "v0 = aten.neg.out(x0, out=x1)\nv1 = aten.abs.default(v0)\nreturn (v1,)",
        XY,
        "aten.neg.out(x0, out=x1)\nv1 = aten.abs.default(x1)\nreturn (v1,)",
        XY,
    ),
    (
        "simplify_ops",
        "aten.lerp_.Scalar(x0, x1, 2)\nreturn ()",
        XY,
        "aten.add_.Scalar(x0, 1)\nreturn ()",
        XY,
    ),
    (
        "simplify_ops",
        "aten.lerp_.Scalar(x0, x1, 2)\nreturn ()",
        XY,
        "aten.copy_.default(x0, x1)\nreturn ()",
        XY,
    ),
    (
        "simplify_ops",
        "v0 = aten.t.default(x0)\nreturn (v0,)",
        X,
        "v0 = aten.alias.default(x0)\nreturn (v0,)",
        X,
    ),
    (
        "simplify_ops",
        "v0 = aten.mul.Tensor(x0, x1)\nreturn ()",
        XY,
        "v0 = aten.add.Tensor(x0, x1)\nreturn ()",
        XY,
    ),
    (
        "drop_arguments",
        "aten.sub_.Tensor(x0, x1, alpha=2)\nreturn ()",
        XY,
        "aten.sub_.Tensor(x0, x1)\nreturn ()",
        XY,
    ),
    (
        "drop_arguments",
        "aten.clamp_.default(x0, 1, 2)\nreturn ()",
        X,
        "aten.clamp_.default(x0, 1)\nreturn ()",
        X,
    ),
    (
        "simplify_constants",
        "aten.add_.Scalar(x0, 5)\nreturn ()",
        X,
        "aten.add_.Scalar(x0, 0)\nreturn ()",
        X,
    ),
    (
        "simplify_constants",
        "aten.add_.Scalar(x0, -5)\nreturn ()",
        X,
        "aten.add_.Scalar(x0, 5)\nreturn ()",
        X,
    ),
    (
        "simplify_constants",
        "v0 = aten.flip.default(x0, [-1])\nreturn ()",
        X,
        "v0 = aten.flip.default(x0, [0])\nreturn ()",
        X,
    ),
    (
        "simplify_constants",
        "v0 = aten.expand.default(x0, [3, 4])\nreturn ()",
        X,
        "v0 = aten.expand.default(x0, [2, 4])\nreturn ()",
        X,
    ),
    (
        "rewire_uses",
        "v0 = aten.neg.default(x1)\naten.add_.Tensor(v0, v0)\nreturn (v0,)",
        XY,
        "v0 = aten.neg.default(x1)\naten.add_.Tensor(x0, x0)\nreturn (v0,)",
        XY,
    ),
    ("rewire_uses", "return (x1,)", XY, "return (x0,)", XY),
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
def test_a_step_offers_what_it_is_for(
    program, name: str, before: str, shapes, after: str, other_shapes
) -> None:
    wanted = program(after, *other_shapes)
    offered = BY_NAME[name](program(before, *shapes))
    assert without_layouts(wanted) in map(without_layouts, offered)


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
