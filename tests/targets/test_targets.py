"""The targets: right programs run right, refusals are torch's own words, recipes do what `build` does."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from generators.features import swarm
from generators.strategies import sample
from oracles.contract import Refusal
from oracles.observation import observe, observe_eager
from oracles.raised_errors import skeleton
from oracles.verdict import Verdict
from programs.errors import UserError
from programs.execution import ProgramFunction
from programs.parsing import parse_source
from programs.program import Input, Program, Storage
from programs.trace import Trace
from programs.values import clone_inputs, input_tensors
from targets.registry import TARGETS, target
from targets.target import Target
from trials.trial import Case, run_trial

known_bug = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13"
)
every_target = pytest.mark.parametrize("accused", TARGETS.values(), ids=TARGETS)

Function = Callable[..., object]


def matrix() -> Tensor:
    return torch.arange(1.0, 10).view(3, 3)


def mutate_and_view(x: Tensor, y: Tensor) -> object:
    x.mul_(2)
    x[0].add_(y[1])
    return x.t(), x + y


def swap(x: Tensor, y: Tensor) -> object:
    saved = x.clone()
    x.copy_(y)
    y.copy_(saved)
    return saved


def write_between_reads(x: Tensor, y: Tensor) -> object:
    before = x + 1
    x.diagonal().zero_()
    return before, x + 1


RIGHT: dict[str, Function] = {
    "functional": lambda x, y: (x @ y, x.sum(0)),
    "nothing": lambda x, y: None,
    "an input": lambda x, y: x,
    "a view": lambda x, y: x[1:, ::2],
    "in-place": lambda x, y: x.add_(y),
    "out=": lambda x, y: torch.add(x, 1, out=y),
    "mutate and view": mutate_and_view,
    "swap": swap,
    "write between reads": write_between_reads,
    "a chain of views": lambda x, y: x.t()[1:].unsqueeze(0).select(2, 0).mul_(3),
}


# --- right programs -------------------------------------------------------------------------------


@every_target
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_runs_right(name: str, accused: Target) -> None:
    trial = run_trial(Case.of_function(RIGHT[name], [matrix(), -matrix()]), accused)
    verdicts = {oracle: report.verdict for oracle, report in trial.judgement.reports.items()}
    assert set(verdicts.values()) == {Verdict.HOLDS}, verdicts


@every_target
def test_inputs_that_share_a_storage_run_right(accused: Target) -> None:
    base = matrix()
    trial = run_trial(
        Case.of_function(lambda x, y: x.add_(1) * y.sub_(1), [base[0], base[1:]]), accused
    )
    assert {report.verdict for report in trial.judgement.reports.values()} == {Verdict.HOLDS}


def test_overlapping_inputs_run_right_where_they_are_promised_to() -> None:
    subject = Case.of_function(lambda x, y: x.add_(1) * y, [(base := matrix())[:2], base[1:]])
    for name in ("identity", "aot", "aot-epilogue"):
        assert run_trial(subject, target(name)).judgement.violations == []
    for name in ("functionalize", "fx-reinplace"):
        assert "written inputs are disjoint" in str(
            run_trial(subject, target(name)).judgement.refused
        )


def test_identity_is_right_about_everything() -> None:
    count = 0
    for seed in range(30):
        for program in sample(swarm(seed), seed, 10):
            trial = run_trial(Case.of(program), target("identity"))
            assert {report.verdict for report in trial.judgement.reports.values()} == {
                Verdict.HOLDS
            }
            count += 1
    assert count == 300


@every_target
def test_every_target_shows_its_stages(accused: Target) -> None:
    program = Program(
        (Storage(torch.float32, 4),), (Input("x", 0, torch.float32, (4,), (1,)),), (), ("x",)
    )
    build = run_trial(Case.of(program), accused).build
    assert build is not None
    assert [each.name for each in build.stages] == STAGES[accused.name]
    for stage in build.stages:
        stage.graph.graph.lint()


STAGES = {
    "identity": ["program"],
    "functionalize": ["functionalized"],
    "fx-reinplace": ["functionalized", "reinplaced"],
    "aot": ["inference graph"],
    "aot-epilogue": ["inference graph"],
    "reference": ["functional", "without no-ops", "reinplaced"],
    "reference-copy": ["functional", "without no-ops", "reinplaced"],
}


def test_stages_are_what_the_target_says() -> None:
    """The functionalized stage holds no mutation but the epilogue, and reinplace puts some back into a copy of it."""
    subject = Case.of_function(lambda x: x.neg().add_(1).mul_(2), [matrix()])
    build = run_trial(subject, target("fx-reinplace")).build
    assert build is not None
    functional, reinplaced = (
        [str(node.target) for node in stage.graph.graph.nodes] for stage in build.stages
    )
    assert not any(re.search(r"\w_\.", each) for each in functional)
    assert any(re.search(r"\w_\.", each) for each in reinplaced)


def test_the_two_variants_of_aot_differ_in_who_writes_back() -> None:
    subject = Case.of_function(lambda x: x.add_(1), [matrix()])
    kept, epilogue = (run_trial(subject, target(name)).build for name in ("aot", "aot-epilogue"))
    assert kept is not None
    assert epilogue is not None
    assert "copy_" in kept.stages[0].graph.code
    assert "copy_" not in epilogue.stages[0].graph.code


# --- the registry ---------------------------------------------------------------------------------


def test_targets_are_found_by_name() -> None:
    assert list(TARGETS) == [*STAGES]
    assert all(target(name).name == name for name in TARGETS)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("functionalise", "did you mean 'functionalize'?"),
        ("aot_epilogue", "did you mean 'aot-epilogue'?"),
        ("reinplace", "did you mean 'fx-reinplace'?"),
        ("zzz", "targets: identity, functionalize, fx-reinplace, aot, aot-epilogue"),
        ("", "targets: identity"),
    ],
)
def test_an_unknown_target_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UserError, match="unknown target") as raised:
        target(name)
    assert hint in str(raised.value)


@every_target
def test_a_target_builds_on_others_that_are_registered(accused: Target) -> None:
    while accused.after is not None:
        accused = accused.after
        assert TARGETS[accused.name] is accused


# --- contracts ------------------------------------------------------------------------------------


def test_identity_waives_nothing() -> None:
    contract = target("identity").contract
    assert (contract.waivers, contract.preconditions, contract.refusals) == ((), (), ())


@every_target
def test_every_exception_has_its_reason(accused: Target) -> None:
    contract = accused.contract
    reasons = [each.reason for each in contract.waivers]
    reasons += [each.reason for each in contract.preconditions]
    reasons += [each.reason for each in contract.refusals]
    assert all(len(reason.split()) >= 5 for reason in reasons)
    promises = [each.promise for each in contract.waivers]
    assert len(promises) == len(set(promises))


def masked(x: Tensor) -> object:
    return x[x > 2]


def read_a_number(x: Tensor) -> object:
    return x.view(9)[: int(x.sum())]


def through_numpy(x: Tensor) -> object:
    return torch.from_numpy(x.numpy() + 1)


# What makes torch refuse, by a part of the refusal's pattern: the function and its inputs.
TRIGGERS: dict[str, list[tuple[Function, Callable[[], list[Tensor]]]]] = {
    "tracing tensor": [(read_a_number, lambda: [matrix()]), (through_numpy, lambda: [matrix()])],
    "view chain": [(lambda x: x[0].as_strided((2,), (1,)).zero_(), lambda: [matrix()])],
    "DynamicOutputShapeException": [
        (masked, lambda: [matrix()]),
        (read_a_number, lambda: [matrix()]),
    ],
    "Refused": [(read_a_number, lambda: [matrix()])],
    "different dtypes": [(lambda x, y: x.zero_(), lambda: [(x := matrix()), x.view(torch.int32)])],
}
EXPECTED = [
    pytest.param(accused, refusal, id=f"{accused.name}-{refusal.message[:30]}")
    for accused in TARGETS.values()
    for refusal in accused.contract.refusals
]


@pytest.mark.parametrize(("accused", "refusal"), EXPECTED)
def test_every_refusal_is_in_words_that_torch_uses(accused: Target, refusal: Refusal) -> None:
    (triggers,) = (each for part, each in TRIGGERS.items() if part in refusal.message)
    found = []
    for function, inputs in triggers:
        eager, trace = observe_eager(function, clone_inputs(inputs()))

        def compiled(*tensors: Tensor, function=function, sample_inputs=inputs) -> object:
            return accused.build(function, clone_inputs(sample_inputs())).function(*tensors)

        error = observe(compiled, clone_inputs(inputs())).error
        assert eager.error is None
        found.append(error is not None and accused.contract.refusal(error, trace))
    assert refusal in found


# Real bugs, whose messages must not be taken for refusals.
BUGS = (
    RuntimeError(
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location."
    ),
    RuntimeError(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory"
    ),
    RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported."),
    RuntimeError(
        "as_strided_scatter: sizes [1, 2], strides [0, 1] are out of bounds for storage of size 4"
    ),
    RuntimeError(
        "Found a custom (non-ATen) operator whose output has alias annotations: aten::square_(Tensor(a!) self)"
    ),
    AssertionError(
        "incorrect out shape after application of ViewMeta sequence: () (actual) vs (1) (expected)"
    ),
    IndexError("Dimension out of range (expected to be in range of [-1, 0], but got 1)"),
    RuntimeError(""),
)


@every_target
@pytest.mark.parametrize("error", BUGS, ids=lambda error: str(error)[:30])
def test_a_bug_is_not_taken_for_a_refusal(accused: Target, error: Exception) -> None:
    assert accused.contract.refusal(error, Trace()) is None


# --- recipes --------------------------------------------------------------------------------------


def recipe(accused: Target) -> Callable[[Function, Sequence[Tensor]], Function]:
    namespace: dict[str, Any] = {"torch": torch}
    exec(accused.recipe, namespace)
    compiled: Callable[[Function, Sequence[Tensor]], Function] = namespace["compiled"]
    return compiled


@every_target
def test_a_recipe_needs_torch_alone_and_what_it_accuses(accused: Target) -> None:
    modules = [
        name.split(".")[0]
        for node in ast.walk(ast.parse(accused.recipe))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [each.name for each in node.names]
        )
    ]
    own = {"reference_pass"} if accused.name.startswith("reference") else set()
    assert set(modules) <= {"torch"} | own | sys.stdlib_module_names


def traits(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    return (
        value.dtype,
        value.shape,
        value.stride(),
        value.storage_offset(),
        value.untyped_storage().tolist(),
    )


def ends(function: Function, inputs: Sequence[Tensor]) -> object:
    """What a run leaves behind, in a form that can be compared."""
    seen = observe(function, inputs)
    if seen.error is not None:
        return skeleton(seen.error)
    return list(map(traits, seen.outputs)), list(map(traits, seen.inputs))


@every_target
@pytest.mark.parametrize("name", RIGHT)
def test_a_recipe_runs_right_functions_right(name: str, accused: Target) -> None:
    function, inputs = RIGHT[name], [matrix(), -matrix()]
    compiled = recipe(accused)(function, clone_inputs(inputs))
    assert ends(compiled, clone_inputs(inputs)) == ends(function, clone_inputs(inputs))


@every_target
def test_a_recipe_does_what_build_does(accused: Target) -> None:
    for seed in range(10):
        for program in sample(swarm(seed), seed, 3):
            check_recipe(accused, program)


def check_recipe(accused: Target, program: Program) -> None:
    function = ProgramFunction(program)

    def built(*inputs: Tensor) -> object:
        return accused.build(function, input_tensors(program)).function(*inputs)

    def by_recipe(*inputs: Tensor) -> object:
        return recipe(accused)(function, input_tensors(program))(*inputs)

    assert ends(by_recipe, input_tensors(program)) == ends(built, input_tensors(program))


@every_target
@pytest.mark.parametrize(
    ("sizes", "strides"),
    [((2, 3), (6, 2)), ((2, 3), (1, 2)), ((2, 3), (0, 1)), ((2, 2), (1, 1)), ((2, 1), (1, 5))],
)
def test_a_recipe_does_what_build_does_for_inputs_of_any_layout(
    accused: Target, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    view = Input("x", 0, torch.float32, sizes, strides)
    for call in ("aten.neg.default(x)", "aten.clone.default(x)", "aten.flatten.using_ints(x)"):
        body = f"def program(x):\n    v0 = {call}\n    v1 = aten.reshape.default(v0, [-1])\n    return v0, v1\n"
        check_recipe(accused, parse_source(body, (Storage(torch.float32, 12),), (view,)))


@known_bug
@pytest.mark.parametrize("name", ["functionalize", "fx-reinplace", "aot", "aot-epilogue"])
def test_a_recipe_shows_the_bugs_of_its_target(name: str) -> None:
    def program(x: Tensor) -> Tensor:
        x.expand(3, 4).zero_()
        return x + 0

    wrong = recipe(target(name))(program, [torch.arange(4.0)])(torch.arange(4.0))
    assert torch.as_tensor(wrong[0] if isinstance(wrong, (list, tuple)) else wrong).tolist() != [
        0,
        0,
        0,
        0,
    ]


# --- fixed input ----------------------------------------------------------------------------------


@every_target
def test_a_build_may_use_up_its_sample_but_not_the_inputs_of_the_run(accused: Target) -> None:
    sample_inputs, inputs = [matrix()], [matrix()]
    with torch.no_grad():
        built = accused.build(lambda x: x.add_(1), sample_inputs)
        assert inputs[0].tolist() == matrix().tolist()
        built.function(*inputs)
    assert inputs[0].tolist() == (matrix() + 1).tolist()


def test_the_contract_of_reinplace_is_that_of_functionalize_and_one_refusal_more() -> None:
    one, other = target("functionalize").contract, target("fx-reinplace").contract
    assert replace(other, refusals=one.refusals) == one
    assert set(one.refusals) < set(other.refusals)
