"""Variants: their names, the targets that take them, and the bugs that each shows."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import decomposition

from aliasproof.campaigns.failure.signature import Signature
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.values import input_tensors
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.observation import Observation, observe
from aliasproof.oracles.verdict import Verdict
from aliasproof.reference_pass import functionalize
from aliasproof.targets import buffers, reference
from aliasproof.targets.control_flow import FORMS
from aliasproof.targets.gradients import WithGradients
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.second_calls import SECOND_CALLS
from aliasproof.targets.target import Build, Function
from aliasproof.targets.user_targets import KINDS
from aliasproof.targets.variants import GRADS, VARIANTS, is_variant
from tests.short_programs import known_bug, of_vectors, program_of, view
from tests.targets.conftest import (
    OF_TORCH,
    Doubled,
    compiled_ends,
    defined_by,
    matrix,
    printed,
    stages_of,
    trial_of,
)

SINGLE = [f"{name}:{own.name}" for name in TARGETS for own in TARGETS[name].variants]
DOUBLE = ["fx-reinplace:decompose:symbolic", "aot:decompose:grad", "aot-eager:symbolic:second-call"]
# Guards are Dynamo's: one target shows the bugs of all, and generated code takes seconds.
RUN = [
    name
    for name in SINGLE
    if (
        not (set(name.split(":")) & {*SECOND_CALLS} and name.startswith(("inductor", "reference")))
        # These are for programs only: see test_control_flow.
        and not set(name.split(":")) & {*FORMS}
        and name.split(":")[0] in OF_TORCH
    )
    or name in ("inductor-fx:second-call", "inductor:kept-outputs", "reference:kept-outputs")
]


# --- names ----------------------------------------------------------------------------------------


def test_a_name_gives_the_target_of_that_name() -> None:
    for name in (*SINGLE, *DOUBLE):
        found = target(name)
        assert found.name == name
        assert all(target(fewer.name).name == fewer.name for fewer in found.earlier)
    # In any order.
    assert target("fx-reinplace:symbolic:decompose").name == "fx-reinplace:decompose:symbolic"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aot:secondcall", "unknown variant 'secondcall' of target 'aot'; did you mean"),
        ("aot:zzz", f"variants: {', '.join(VARIANTS)}"),
        ("aott:grad", "unknown target 'aott'; did you mean 'aot'?"),
        (
            "identity:symbolic",
            "'identity' has no variant 'symbolic' (it has grad, half-grad, captured, ",
        ),
        ("reference:symbolic:second-call", "'second-call' needs the backend"),
        ("functionalize:captured:symbolic", "exclude each other: a symbolic trace takes no"),
        ("aot:", "unknown variant ''"),
    ],
)
def test_an_impossible_variant_is_refused_with_advice(name: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        target(name)
    assert message in str(raised.value)


def test_a_target_takes_variants_of_the_table_in_its_order() -> None:
    for taken in (*(tested.variants for tested in TARGETS.values()), *KINDS.values()):
        names = [variant.name for variant in taken]
        assert names == [name for name in VARIANTS if name in names]
        assert all(
            {*variant.apart, variant.like or variant.name} <= {*VARIANTS} for variant in taken
        )


def test_an_identifier_is_a_name_of_a_folder_on_every_system() -> None:
    found = Signature(
        Symptom("aot-eager:second-call", "values", "wrong value"), "a cause"
    ).identifier
    assert found.startswith("aot-eager.second-call-values-")


# --- attribution ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "earlier"),
    [
        ("functionalize:decompose", ["functionalize"]),
        ("fx-reinplace:decompose", ["fx-reinplace", "functionalize:decompose"]),
        ("aot-eager:second-call", ["aot-eager"]),
        ("aot-eager", ["aot"]),
        (
            "fx-reinplace:decompose:symbolic",
            ["fx-reinplace:symbolic", "fx-reinplace:decompose", "functionalize:decompose:symbolic"],
        ),
    ],
)
def test_a_variant_builds_on_the_targets_with_one_variant_less(name, earlier):
    assert [found.name for found in target(name).earlier] == earlier


@known_bug
@pytest.mark.parametrize(
    "name", ["aot:symbolic", "aot-eager:second-call", "fx-reinplace:decompose"]
)
def test_a_bug_of_the_plain_target_is_not_one_of_the_variant(name: str) -> None:
    program = of_vectors(
        "v0 = aten.expand.default(x0, [3, 4])\naten.zero_.default(v0)\nreturn ()", 0
    )
    symptom = examine(Case.of(program), target(name)).symptom
    assert symptom is not None
    assert symptom.target in ("functionalize", "aot")


# --- what runs right ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*RUN, *DOUBLE])
def test_a_right_function_runs_right(name: str) -> None:
    def function(x: Tensor, y: Tensor) -> object:
        x = x * 2
        x[0].add_(y[1])
        return x.t(), (x + y).relu()

    found = examine(Case.of_function(function, [matrix(), -matrix()]), target(name))
    assert found.rejected is None
    assert not found.violations
    assert found.reports["values"].verdict is Verdict.HOLDS


CONDITIONS = ["grad", "captured", "kept-buffers", *SECOND_CALLS]
BOTH = [f"{grad.name}:{second}" for grad in GRADS for second in SECOND_CALLS]


@pytest.mark.parametrize("variants", [*CONDITIONS, *BOTH])
def test_identity_is_right_about_all_programs_under_the_same_conditions(variants: str) -> None:
    judged = 0
    for seed in range(10):
        for program in sample(swarm(seed), seed, 4):
            found = examine(Case.of(program), target(f"identity:{variants}"))
            assert not found.violations
            assert found.mistake is None
            judged += found.rejected is None
    assert judged >= (10 if variants in BOTH else 16)


# --- recipes --------------------------------------------------------------------------------------


# Inductor's recipes go through Dynamo, unlike its targets: layouts of empty tensors differ.
@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")  # a script may be warned
@pytest.mark.parametrize(
    "name", [name for name in (*RUN, *DOUBLE) if not name.startswith(("inductor", "aot-eager"))]
)
def test_a_recipe_does_what_build_does(name: str) -> None:
    tested, compared = target(name), 0
    namespace = defined_by(tested.recipe)
    # Programs of several features, until two are compared.
    for program in (drawn for seed in range(20) for drawn in sample(swarm(seed), seed, 1)):
        plain = Case(printed(program), functools.partial(input_tensors, program))
        case = plain.under(tested)
        try:
            built = compiled_ends(
                case, lambda function, inputs: tested.build(function, inputs).function
            )
        except Rejected:
            continue
        if "conditions" in namespace:
            case = Case(*namespace["conditions"](plain.function, plain.fresh_inputs))
        assert compiled_ends(case, namespace["compiled"]) == built
        compared += 1
        if compared == 2:
            return
    pytest.fail("no program can be compared")


@pytest.mark.parametrize(
    ("name", "of", "expected"),
    [
        ("aot", "aot", True),
        ("aot:grad", "aot", True),
        ("aot:decompose:grad", "aot:grad", True),
        ("aot", "aot:grad", False),
        ("aot-epilogue", "aot", False),
        ("aot:half-grad", "aot:grad", True),
        ("aot-eager:half-grad:second-call", "aot-eager:second-call", True),
        ("aot:grad", "aot:half-grad", False),
    ],
)
def test_a_variant_has_the_bugs_of_the_target_with_fewer(name, of, expected):
    assert is_variant(name, of) == expected


# --- what each variant shows: known bugs of torch, and planted mistakes ---------------------------


# --- each variant is another target ---------------------------------------------------------------


def graph(name: str, body: str) -> str:
    return stages_of(run_trial(Case.of(of_vectors(body, 0)), target(name)))[0].graph.code


def test_decompose_leaves_simpler_operators() -> None:
    body = "v0 = aten.flip.default(x0, [0])\nreturn (v0,)"
    assert "flip" in graph("functionalize", body)
    for name in ("functionalize:decompose", "aot:decompose"):
        assert "aten.flip" not in graph(name, body)


def test_a_wrong_decomposition_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    program = of_vectors("v0 = aten.flip.default(x0, [0])\nreturn (v0,)", 0)

    def wrong(x: Tensor, dims: list[int]) -> Tensor:
        return x.clone()

    monkeypatch.setitem(decomposition.decompositions, torch.ops.aten.flip.default, wrong)
    for name in ("functionalize", "aot"):
        assert examine(Case.of(program), target(name)).symptom is None
        found = examine(Case.of(program), target(f"{name}:decompose")).symptom
        assert found == Symptom(f"{name}:decompose", "values", "wrong value")


def test_symbolic_sizes_are_in_the_graph() -> None:
    body = "v0 = aten.add.Scalar(x0, 1)\nreturn (v0,)"
    trial = run_trial(Case.of(of_vectors(body, 0)), target("aot:symbolic"))
    (first, *_) = stages_of(trial)[0].graph.graph.nodes
    assert isinstance(first.meta["val"].shape[0], torch.SymInt)


@pytest.mark.parametrize(
    ("name", "function", "traced", "other", "broken", "reason"),
    [
        ("functionalize", lambda x: x[1:].clone(), (4,), (5,), (1,), "guards"),
        (
            "reference",
            lambda x: x.t().reshape(-1),
            (4, 3),
            (5, 2),
            (4, 1),
            "traced for inputs with",
        ),
    ],
)
def test_a_run_that_violates_the_guards_of_its_trace_is_not_judged(
    name: str, function: Function, traced: Any, other: Any, broken: Any, reason: str
) -> None:
    built = target(f"{name}:symbolic").build(function, [torch.ones(traced)])
    observe(built.function, [torch.ones(other)])
    with pytest.raises(Rejected, match=reason):
        observe(built.function, [torch.ones(broken)])


def test_the_reference_pass_with_symbols_runs_at_other_sizes_than_traced(monkeypatch):
    program = of_vectors("v0 = aten.add.Scalar(x0, 1)\nreturn (v0,)", 0)
    tested = target("reference:symbolic:second-size")
    trial = run_trial(Case.of(program), tested)
    assert not trial.judgement.violations
    (first, *_) = stages_of(trial)[0].graph.graph.nodes
    assert isinstance(first.meta["val"].shape[0], torch.SymInt)

    # A pass that uses the sizes of the trace as numbers is found.
    def with_numbers(*args: Any, sizes: str, views: Any) -> object:
        return functionalize(*args, views=views)

    monkeypatch.setattr(reference, "functionalize", with_numbers)
    wrong = of_vectors("v0 = aten.flatten.using_ints(x0)\nreturn (v0,)", 0, sizes=(2, 3))
    assert examine(Case.of(wrong), tested).symptom is not None


# --- gradients ------------------------------------------------------------------------------------


def gradients(observation: Observation) -> list[object]:
    """The outputs after the first one."""
    return [output.tolist() for output in observation.outputs[1:] if isinstance(output, Tensor)]


def test_gradients_are_outputs() -> None:
    program = of_vectors("v0 = aten.mul.Scalar(x0, 3)\naten.add_.Scalar(x0, 1)\nreturn (v0,)", 0)
    trial = run_trial(Case.of(program), target("aot:grad"))
    assert trial.target is not None
    # The end of the backward pass is 1, 2, 3, 4 for the output, and for the input afterwards.
    assert gradients(trial.target) == [[4.0, 8.0, 12.0, 16.0]]
    assert not trial.judgement.violations
    assert [stage.name for stage in stages_of(trial)] == ["forward graph", "backward graph"]


def test_a_wrong_gradient_is_a_violation() -> None:
    right = target("identity:grad")

    def build(function: Function, inputs: Sequence[Tensor]) -> Build:
        assert isinstance(function, WithGradients)
        inner = function.function
        return Build(WithGradients(lambda x: Doubled.apply(inner(x)[0])), [])

    program = of_vectors("v0 = aten.mul.Scalar(x0, 3)\nreturn (v0,)", 0)
    trial = run_trial(Case.of(program), replace(right, build=build))
    assert [found.describe() for found in trial.judgement.violations] == ["wrong value (output 1)"]


def test_inputs_on_one_storage_have_one_leaf() -> None:
    program = of_vectors("aten.mul_.Scalar(x0, 3)\nv0 = aten.add.Scalar(x1, 1)\nreturn (v0,)", 0, 0)
    trial = run_trial(Case.of(program), target("identity:grad"))
    # 3 * (1 + 1 + 1) * numbers: through the output and through both inputs.
    assert gradients(trial.eager) == [[9.0, 18.0, 27.0, 36.0]]


# --- the second call ------------------------------------------------------------------------------


def test_a_first_call_that_is_undefined_in_eager_is_not_made() -> None:
    # In one storage, the copy would overlap with what it reads.
    body = """v0 = aten.slice.Tensor(x1, 0, 1, 4)
v1 = aten.slice.Tensor(x0, 0, 0, 3)
aten.copy_.default(v1, v0)
return ()"""
    program = of_vectors(body, 0, 1)
    reason = examine(Case.of(program), target("aot-eager:second-call")).rejected
    assert "the first call is undefined in eager" in str(reason)


@pytest.mark.parametrize("name", ["reference", "reference-copy", "reference-planned"])
def test_dynamo_compiles_again_for_inputs_that_require_no_gradient(name: str) -> None:
    """The code for the first call would return another object than the input."""
    program = of_vectors("aten.add_.Scalar(x1, 1)\nreturn (x1,)", 0, 0)
    assert examine(Case.of(program), target(f"{name}:second-grad")).violations == []


# --- captured tensors -----------------------------------------------------------------------------


def test_captured_tensors_are_attributes_of_the_graph() -> None:
    program = of_vectors("v0 = aten.add.Tensor(x0, x1)\nreturn (v0,)", 0, 1)
    trial = run_trial(Case.of(program), target("functionalize:captured"))
    (stage,) = stages_of(trial)
    assert [node.op for node in stage.graph.graph.nodes][:2] == ["placeholder", "get_attr"]
    assert not trial.judgement.violations


def test_a_stale_captured_tensor_is_a_violation() -> None:
    def stale(function: Function, inputs: Sequence[Tensor]) -> Build:
        first = function(*inputs)
        return Build(lambda *tensors: first, [])

    program = of_vectors("v0 = aten.add.Tensor(x0, x1)\nreturn (v0,)", 0, 1)
    wrong = replace(
        target("identity:captured"), build=functools.partial(buffers.build_captured, stale)
    )
    case = Case.of(program)
    drawn = itertools.count()
    # The build gets other values than the run.
    moving = replace(case, fresh_inputs=lambda: [x + next(drawn) // 2 for x in case.fresh_inputs()])
    assert not examine(case, wrong).violations
    assert examine(moving, wrong).violations


def test_a_write_to_a_captured_tensor_is_documented() -> None:
    program = of_vectors(
        "aten.add_.Scalar(x1, 1)\nv0 = aten.add.Tensor(x0, x1)\nreturn (v0,)", 0, 1
    )
    found = examine(Case.of(program), target("functionalize:captured"))
    assert not found.violations
    assert found.documented[0].limitation.name == "requires 'captured tensors are not written'"


def test_a_function_without_captured_tensors_is_not_for_the_variant() -> None:
    class Function:
        captured = 0

        def __call__(self, x: Tensor) -> Tensor:
            return x + 1

    found = examine(Case.of_function(Function(), [matrix()]), target("functionalize:captured"))
    assert "captures no tensor" in str(found.rejected)


# --- same input -----------------------------------------------------------------------------------

WRITTEN = program_of(
    """
    aten.add_.Tensor(x0, x1)
    v0 = aten.mul.Tensor(x1, x2)
    return (v0, x1)
    """,
    view(2, 3),
    view(2, 3),
    view(3),
)


@pytest.mark.parametrize("name", ["identity", "aot", "inductor-fx", "reference"])
def test_a_tensor_that_is_passed_twice_is_one_object(name: str) -> None:
    tested = target(f"{name}:same-input")
    case = Case.of(WRITTEN).under(tested)
    x0, x1, x2 = case.fresh_inputs()
    assert x0 is x1 is not x2
    examination = examine(case, tested)
    assert not examination.failed
    eager = trial_of(examination).eager
    assert eager.outputs[1] is eager.inputs[1]


def test_inputs_of_other_sizes_or_dtypes_are_not_merged() -> None:
    apart = program_of("return (x0, x1)", view(2), view(3))
    with pytest.raises(Rejected, match="no two inputs have equal sizes"):
        Case.of(apart).under(target("aot:same-input")).fresh_inputs()
