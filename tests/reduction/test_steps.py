"""The passes: each offers what it says, on programs of every kind; and the order that they go down."""

from __future__ import annotations

import inspect
import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from generators.features import swarm
from generators.strategies import sample
from programs.errors import UserError
from programs.program import Instruction, Program, Ref
from programs.validation import validate
from reduction import steps
from reduction.simplicity import simplicity
from reduction.steps import STEPS


def is_valid(program: Program) -> bool:
    try:
        validate(program)
    except UserError:
        return False
    return True


@pytest.fixture(scope="module")
def drawn() -> list[Program]:
    """Programs as they are drawn, and as they are in the middle of a reduction, with an input less."""
    fresh = [program for seed in range(30) for program in sample(swarm(seed), seed, 2)]
    halfway = [next(steps.drop_inputs(program)) for program in fresh]
    return fresh + list(filter(is_valid, halfway))


# --- every pass on sampled programs ---------------------------------------------------------------


def test_no_pass_is_forgotten() -> None:
    public = {
        function
        for name, function in inspect.getmembers(steps, inspect.isfunction)
        if function.__module__ == steps.__name__ and not name.startswith("_")
    }
    assert set(STEPS) == public
    assert len(STEPS) == len(public)


@pytest.mark.parametrize("one_pass", STEPS)
def test_every_pass_offers_simpler_programs(one_pass, drawn: list[Program]) -> None:
    counts: Counter[str] = Counter()
    for program in drawn:
        candidates = list(one_pass(program))
        valid = list(filter(is_valid, candidates))
        simpler = [each for each in valid if simplicity(each) < simplicity(program)]
        counts.update(candidates=len(candidates), simpler=len(simpler), programs=bool(simpler))
        assert len(candidates) < 1000
    assert counts["programs"] >= 10, counts


@pytest.mark.parametrize("one_pass", STEPS)
def test_every_pass_repeats_itself(one_pass, drawn: list[Program]) -> None:
    for program in drawn[:30]:
        assert list(one_pass(program)) == list(one_pass(program))


@pytest.mark.parametrize("one_pass", STEPS)
def test_the_empty_program_has_nothing_to_offer(one_pass) -> None:
    empty = Program((), (), (), ())
    assert all(candidate == empty for candidate in one_pass(empty))


# --- what each pass is for ------------------------------------------------------------------------

X = ((4,),)
XY = ((4,), (4,))
FULL = "v0 = aten.neg.default(x0)\nv1 = aten.mul.Tensor(v0, x0)\nreturn v0, v1"

OFFERS = [
    ("drop_tail", FULL, X, "v0 = aten.neg.default(x0)\nreturn (v0,)", X),
    ("drop_instructions", FULL, X, "v0 = aten.neg.default(x0)\nreturn v0, v0", X),
    ("drop_instructions", FULL, X, "v1 = aten.mul.Tensor(x0, x0)\nreturn x0, v1", X),
    ("drop_instructions", FULL, X, "return ()", X),
    ("keep_one_output", FULL, X, FULL.replace("v0, v1", "(v1,)"), X),
    ("keep_one_output", FULL, X, FULL.replace("v0, v1", "()"), X),
    ("drop_outputs", FULL, X, FULL.replace("v0, v1", "(v0,)"), X),
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
    ("drop_dimensions", "return x0, x1", ((4, 2), (4, 3)), "return x0, x1", ((4,), (4,))),
    ("drop_dimensions", "return x0, x1", ((4, 2), (4, 3)), "return x0, x1", ((4, 2), (3,))),
]


@pytest.mark.parametrize(("name", "before", "shapes", "after", "other_shapes"), OFFERS)
def test_a_pass_offers_what_it_is_for(
    program, name: str, before: str, shapes, after: str, other_shapes
) -> None:
    wanted = program(after, *other_shapes)
    offered = [laid_out(each) for each in getattr(steps, name)(program(before, *shapes))]
    assert laid_out(wanted) in offered


def laid_out(program: Program) -> Program:
    """The program without regard to strides and lengths, which are the matter of `simplify_layouts`."""
    inputs = tuple(replace(each, strides=()) for each in program.inputs)
    return replace(
        program, inputs=inputs, storages=tuple(replace(each, length=0) for each in program.storages)
    )


@pytest.fixture
def sharing(program: Callable[..., Program]) -> Program:
    """Two inputs in one storage of eight, beside a storage that nobody views."""
    apart = program("aten.add_.Tensor(x0, x1)\nreturn (x1,)", (4,), (4,))
    inputs = (apart.inputs[0], replace(apart.inputs[1], storage=0, offset=2))
    return replace(
        apart,
        inputs=inputs,
        storages=(replace(apart.storages[0], length=8), apart.storages[1]),
        seed=3,
    )


def test_separate_storages_gives_an_input_its_own(sharing: Program) -> None:
    offered = list(steps.separate_storages(sharing))
    assert [[each.storage for each in candidate.inputs] for candidate in offered] == [
        [2, 0],
        [0, 2],
    ]
    assert all(map(is_valid, offered))


def test_drop_storages_leaves_out_what_nobody_views(sharing: Program) -> None:
    (offered,) = steps.drop_storages(sharing)
    assert offered.storages == sharing.storages[:1]
    assert list(steps.drop_storages(offered)) == []


def test_drop_inputs_puts_another_in_its_place(sharing: Program) -> None:
    assert any(
        each.instructions == (Instruction("aten.add_.Tensor", (Ref("x0"), Ref("x0"))),)
        and each.outputs == ("x0",)
        for each in steps.drop_inputs(sharing)
    )


def test_simplify_layouts_moves_and_cuts(sharing: Program) -> None:
    offered = list(steps.simplify_layouts(sharing))
    assert any(candidate.inputs[1].offset == 0 for candidate in offered)
    assert any(candidate.inputs[1].offset == 1 for candidate in offered)
    assert any(candidate.storages[0].length == 6 for candidate in offered)
    strided = replace(
        sharing, inputs=(replace(sharing.inputs[0], sizes=(2,), strides=(3,)), sharing.inputs[1])
    )
    strides = {candidate.inputs[0].strides for candidate in steps.simplify_layouts(strided)}
    assert {(1,), (2,)} <= strides


def test_simplify_dtypes_keeps_views_of_another_dtype(program) -> None:
    start = program("return x0, x1", (4,), (2,), dtype=torch.complex64)
    reinterpreted = replace(start.inputs[1], storage=0, dtype=torch.bool)
    start = replace(start, inputs=(start.inputs[0], reinterpreted))
    offered = {
        tuple(each.dtype for each in candidate.inputs) for candidate in steps.simplify_dtypes(start)
    }
    assert {(torch.float32, torch.bool), (torch.int64, torch.bool)} <= offered
    assert {view for _, view in offered} == {torch.bool}


def test_simplify_seed_goes_to_zero(sharing: Program) -> None:
    (offered,) = steps.simplify_seed(sharing)
    assert offered == replace(sharing, seed=0)


def test_results_become_inputs_of_the_same_layout(program) -> None:
    start = program(
        "v0 = aten.neg.default(x0)\nv1 = aten.t.default(v0)\naten.zero_.default(v1)\nreturn (v1,)",
        (2, 3),
    )
    first, second = steps.results_to_inputs(start)
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
    assert [each.op for each in second.instructions] == ["aten.neg.default", "aten.zero_.default"]
    assert is_valid(first)
    assert is_valid(second)


# --- the order ------------------------------------------------------------------------------------


def numbers_in(key: tuple[object, ...]) -> list[float]:
    assert all(isinstance(each, (int, float)) for each in key)
    return [float(each) for each in key]  # type: ignore[arg-type]


def test_simplicity_is_a_strict_order(drawn: list[Program]) -> None:
    keys = [simplicity(each) for each in drawn]
    for one, other in itertools.pairwise(keys):
        assert (one < other) + (other < one) + (one == other) == 1
    assert not any(key < key for key in keys)
    assert [simplicity(each) for each in drawn] == keys


def test_simplicity_is_well_founded(drawn: list[Program]) -> None:
    """Tuples of one length, of numbers in whole and half steps from zero up: nothing can go down for ever."""
    keys = [numbers_in(simplicity(each)) for each in drawn]
    assert len({len(key) for key in keys}) == 1
    assert all(
        number >= 0 and math.isfinite(number) and (2 * number).is_integer()
        for key in keys
        for number in key
    )


def test_simplicity_does_not_depend_on_names(drawn: list[Program]) -> None:
    for program in drawn:
        assert simplicity(program.renamed()) == simplicity(program)


ODD = (
    float("nan"),
    float("inf"),
    float("-inf"),
    -(2**63),
    2**64,
    1e300,
    True,
    None,
    torch.float32,
    (),
)


@pytest.mark.parametrize("argument", ODD)
def test_any_argument_has_its_place_in_the_order(program, argument) -> None:
    start = program("v0 = aten.add.Scalar(x0, 1)\nreturn (v0,)", (4,))
    odd = replace(start, instructions=(replace(start.instructions[0], args=(Ref("x0"), argument)),))
    assert all(number == number and math.isfinite(number) for number in numbers_in(simplicity(odd)))
    assert (simplicity(odd) < simplicity(start)) != (
        simplicity(start) < simplicity(odd)
    ) or simplicity(odd) == simplicity(start)


SIMPLER = [
    (
        "fewer instructions, though longer",
        "aten.addcmul_.default(x0, x1, x1, value=9)\nreturn x0, x1",
        "aten.zero_.default(x0)\naten.zero_.default(x1)\nreturn ()",
    ),
    (
        "fewer outputs",
        "aten.zero_.default(x0)\nreturn (x0,)",
        "aten.zero_.default(x0)\nreturn x0, x1",
    ),
    ("a plainer op", "aten.zero_.default(x0)\nreturn ()", "aten.cos_.default(x0)\nreturn ()"),
    (
        "fewer arguments",
        "aten.clamp_.default(x0, 1)\nreturn ()",
        "aten.clamp_.default(x0, 1, 2)\nreturn ()",
    ),
    (
        "a smaller number",
        "aten.add_.Scalar(x0, 1)\nreturn ()",
        "aten.add_.Scalar(x0, 2)\nreturn ()",
    ),
    (
        "a positive number",
        "aten.add_.Scalar(x0, 2)\nreturn ()",
        "aten.add_.Scalar(x0, -2)\nreturn ()",
    ),
    ("an earlier input", "aten.zero_.default(x0)\nreturn ()", "aten.zero_.default(x1)\nreturn ()"),
]


@pytest.mark.parametrize(("why", "simpler", "other"), SIMPLER)
def test_what_counts_as_simpler(program, why: str, simpler: str, other: str) -> None:
    assert simplicity(program(simpler, (4,), (4,))) < simplicity(program(other, (4,), (4,)))


def test_plainer_inputs_count_as_simpler(program) -> None:
    plain = program("aten.zero_.default(x0)\nreturn ()", (2, 2))
    view, storage = plain.inputs[0], plain.storages[0]
    for view_change, storage_change in (
        ({"sizes": (2, 3), "strides": (3, 1)}, {"length": 6}),
        ({"strides": (1, 2)}, {}),
        ({"offset": 1}, {"length": 5}),
        ({}, {"length": 5}),
        ({"dtype": torch.float64}, {"dtype": torch.float64}),
    ):
        fancier = replace(
            plain,
            inputs=(replace(view, **view_change),),
            storages=(replace(storage, **storage_change),),
        )
        assert simplicity(plain) < simplicity(fancier)
    assert simplicity(plain) < simplicity(replace(plain, seed=1))
