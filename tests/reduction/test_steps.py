"""The steps: each offers what its name says, and only simpler programs; what is simpler."""

import inspect
import math
import re
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
CALLS = "v0 = aten.neg.default(x0); v1 = aten.mul.Tensor(v0, x0)"

# A step, a program, and a candidate of the step. Inputs are two vectors, unless shapes are given.
OFFERS = """
cut_tail: CALLS; return v0, v1 --> v0 = aten.neg.default(x0); return (v0,)
drop_instructions: CALLS; return v0, v1 --> v0 = aten.neg.default(x0); return v0, v0
drop_instructions: CALLS; return v0, v1 --> v1 = aten.mul.Tensor(x0, x0); return x0, v1
drop_instructions: CALLS; return v0, v1 --> return ()
slice_outputs: CALLS; return v0, v1 --> CALLS; return (v1,)
slice_outputs: CALLS; return v0, v1 --> CALLS; return ()
drop_outputs: CALLS; return v0, v1 --> CALLS; return (v0,)
drop_result_names: v0 = aten.neg_.default(x0); return (v0,) --> aten.neg_.default(x0); return (x0,)
drop_result_names: v0 = aten.neg.out(x0, out=x1); v1 = aten.abs.default(v0); return (v1,)
    --> aten.neg.out(x0, out=x1); v1 = aten.abs.default(x1); return (v1,)
plain_gradients: with torch.no_grad():;     v0 = aten.neg.default(x0); return (v0,)
    --> v0 = aten.neg.default(x0); return (v0,)
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
shrink_sizes [4] to [1]: return (x0,) --> return (x0,)
shrink_sizes [4, 4] to [2, 2]: return (x0,) --> return (x0,)
shrink_sizes [4, 4] to [4, 3]: return (x0,) --> return (x0,)
shrink_sizes [4] to [2]: v0 = aten.expand.default(x0, [3, 4])
    --> v0 = aten.expand.default(x0, [3, 2])
shrink_sizes [4, 3] to [1, 3]: v0 = aten.view.default(x0, [12])
    --> v0 = aten.view.default(x0, [3])
drop_dimensions [4, 2] [4, 3] to [4] [4]: return x0, x1 --> return x0, x1
drop_dimensions [4, 2] [4, 3] to [4, 2] [3]: return x0, x1 --> return x0, x1
"""


@pytest.fixture
def of_line(program: Callable[..., Program]) -> Callable[[str, str], Program]:
    """`of_line("CALL; CALL", "[4] [2, 3]")`: a program, and the shapes of its inputs."""

    def written(line: str, shapes: str = "[4] [4]") -> Program:
        body = line.replace("CALLS", CALLS).replace("; ", "\n")
        sizes = [tuple(map(int, each.split(","))) for each in re.findall(r"\[(.*?)\]", shapes)]
        return program(body if "return" in body else f"{body}\nreturn ()", *sizes)

    return written


@pytest.mark.parametrize("line", OFFERS.replace("\n    ", " ").strip().splitlines())
def test_a_step_offers_what_it_is_for(of_line, line: str) -> None:
    head, texts = line.split(": ", 1)
    name, _, shapes = head.partition(" ")
    before, after = (shapes or "[4] [4] to [4] [4]").split(" to ")
    start, wanted = map(of_line, texts.split(" --> "), (before, after))
    assert without_layouts(wanted) in map(without_layouts, BY_NAME[name](start))


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


# --- the order in which each step must descend ----------------------------------------------------


def numbers_in(key: tuple[object, ...]) -> list[float]:
    assert all(isinstance(number, (int, float)) for number in key)
    return [float(number) for number in key]  # type: ignore[arg-type]


def test_simplicity_is_well_founded(drawn: list[Program]) -> None:
    """Tuples of one length, of numbers from zero up in half steps: no infinite descent."""
    keys = [numbers_in(simplicity(program)) for program in drawn]
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
    *(float("nan"), float("inf"), float("-inf"), -(2**63), 2**64, 1e300),
    *(True, None, torch.float32, ()),
)


@pytest.mark.parametrize("argument", ODD)
def test_any_argument_is_in_the_order(program, argument) -> None:
    start = program("v0 = aten.add.Scalar(x0, 1)\nreturn (v0,)", (4,))
    odd = replace(start, instructions=(replace(start.instructions[0], args=(Ref("x0"), argument)),))
    assert all(number == number and math.isfinite(number) for number in numbers_in(simplicity(odd)))


SIMPLER = """
fewer instructions, though longer: aten.addcmul_.default(x0, x1, x1, value=9); return x0, x1
    < aten.zero_.default(x0); aten.zero_.default(x1)
fewer outputs: aten.zero_.default(x0); return (x0,) < aten.zero_.default(x0); return x0, x1
a plainer op: aten.zero_.default(x0) < aten.cos_.default(x0)
fewer arguments: aten.clamp_.default(x0, 1) < aten.clamp_.default(x0, 1, 2)
a smaller number: aten.add_.Scalar(x0, 1) < aten.add_.Scalar(x0, 2)
a positive number: aten.add_.Scalar(x0, 2) < aten.add_.Scalar(x0, -2)
an earlier input: aten.zero_.default(x0) < aten.zero_.default(x1)
"""


@pytest.mark.parametrize("line", SIMPLER.replace("\n    ", " ").strip().splitlines())
def test_what_counts_as_simpler(of_line, line: str) -> None:
    simpler, other = map(of_line, line.split(": ")[1].split(" < "))
    assert simplicity(simpler) < simplicity(other)


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
