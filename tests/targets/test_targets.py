"""The targets: right functions run right, stages are as declared, and names are found."""

import re

import pytest
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Program
from aliasproof.ir.values import input_tensors
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Promise
from aliasproof.oracles.observation import observe
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.aot import AOT
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.target import Function, Target
from tests.short_programs import of_vectors
from tests.targets.conftest import OF_TORCH, matrix, stages_of

# --- right programs -------------------------------------------------------------------------------


def test_a_right_function_runs_right(right: Function, tested: Target) -> None:
    trial = run_trial(Case.of_function(right, [matrix(), -matrix()]), tested)
    reports = trial.judgement.reports
    expected = dict.fromkeys(reports, Verdict.HOLDS)
    # The contract of functionalize waives the identity and the layout of this output.
    waived = {found.difference.oracle: Verdict.DOCUMENTED for found in trial.judgement.documented}
    assert {oracle: report.verdict for oracle, report in reports.items()} == expected | waived
    if waived:
        assert tested.name in ("functionalize", "fx-reinplace", "export", "aot-inductor")
        assert set(waived) <= {"aliasing", "objects", "metadata"}


def test_inputs_that_share_a_storage_run_right(tested: Target) -> None:
    base = matrix()
    trial = run_trial(
        Case.of_function(lambda x, y: x.add_(1) * y.sub_(1), [base[0], base[1:]]), tested
    )
    assert {report.verdict for report in trial.judgement.reports.values()} == {Verdict.HOLDS}


def test_overlapping_inputs_run_right_where_they_are_promised_to() -> None:
    case = Case.of_function(lambda x, y: x.add_(1) * y, [(base := matrix())[:2], base[1:]])
    for name in ("identity", "aot", "aot-epilogue"):
        assert run_trial(case, target(name)).judgement.violations == []
    for name in ("functionalize", "fx-reinplace"):
        judgement = run_trial(case, target(name)).judgement
        (found,) = judgement.documented
        assert judgement.violations == []
        assert "written inputs are disjoint" in found.limitation.name


@pytest.mark.parametrize(("start", "documented"), [(16, False), (8, True)])
def test_aot_refuses_inputs_of_two_dtypes_rightly_if_they_overlap(start, documented):
    """Inputs of one dtype overlap, and a third one has another dtype. It may overlap, too."""
    base = torch.zeros(24, dtype=torch.uint8)
    inputs = [base[:8].view(torch.float32), base[4:12].view(torch.float32)]
    case = Case.of_function(
        lambda x, y, z: (x.add_(1), y + 0, z + 0), [*inputs, base[start:].view(torch.int32)]
    )
    judgement = run_trial(case, target("aot")).judgement
    assert bool(judgement.violations) == (not documented)
    assert bool(judgement.documented) == documented


def test_identity_is_right_about_all_programs() -> None:
    count = 0
    for seed in range(30):
        for program in sample(swarm(seed), seed, 10):
            trial = run_trial(Case.of(program), target("identity"))
            assert {report.verdict for report in trial.judgement.reports.values()} == {
                Verdict.HOLDS
            }
            count += 1
    assert count == 300


def test_every_target_shows_its_stages(tested: Target) -> None:
    stages = stages_of(run_trial(Case.of(of_vectors("return (x0,)", 0)), tested))
    assert tested.name in STAGES, "say in STAGES which graphs the target passes through"
    assert [stage.name for stage in stages] == STAGES[tested.name]
    for stage in stages:
        stage.graph.graph.lint()


STAGES = {
    "identity": ["program"],
    "eager-cuda": [],
    "functionalize": ["functionalized"],
    "fx-reinplace": ["functionalized", "reinplaced"],
    "aot": ["inference graph"],
    "aot-epilogue": ["inference graph"],
    "dynamo": [],  # there is nothing to compile in a program without calls
    "aot-eager": [],
    "export": ["exported graph", "decomposed graph"],
    "inductor-reinplace": ["inference graph", "inference graph after reinplacing"],
    "inductor-fx": ["post-grad graph"],
    "inductor": [],  # generated code
    "aot-inductor": [],
    "reference": ["functional", "without no-ops", "reinplaced"],
    "reference-copy": ["functional", "without no-ops", "reinplaced"],
    "reference-planned": ["functional", "without no-ops", "reinplaced"],
}


def test_stages_are_what_the_target_says() -> None:
    """Functionalization leaves no mutation except the epilogue, and reinplacing adds some."""
    case = Case.of_function(lambda x: x.neg().add_(1).mul_(2), [matrix()])
    functional, reinplaced = (
        [str(node.target) for node in stage.graph.graph.nodes]
        for stage in stages_of(run_trial(case, target("fx-reinplace")))
    )
    assert not any(re.search(r"\w_\.", op) for op in functional)
    assert any(re.search(r"\w_\.", op) for op in reinplaced)


def test_the_two_variants_of_aot_differ_in_who_writes_back() -> None:
    case = Case.of_function(lambda x: x.add_(1), [matrix()])
    for name in ("aot", "aot-epilogue"):
        code = stages_of(run_trial(case, target(name)))[0].graph.code
        assert ("copy_" in code) == (name == "aot")


# --- the registry ---------------------------------------------------------------------------------


def test_targets_are_found_by_name() -> None:
    assert set(OF_TORCH) == set(STAGES)
    assert all(target(name).name == name for name in TARGETS)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("functionalise", "did you mean 'functionalize'?"),
        ("aot_epilogue", "did you mean 'aot-epilogue'?"),
        ("reinplace", "did you mean 'fx-reinplace'?"),
        ("zzz", f"targets: {', '.join(TARGETS)}"),
        ("zzz", "FILE.py:zzz for a function of yours"),
        ("", "targets: identity"),
    ],
)
def test_an_unknown_target_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UserError, match="unknown target") as raised:
        target(name)
    assert hint in str(raised.value)


def test_a_target_builds_on_others_that_are_registered(tested: Target) -> None:
    while tested.after is not None:
        tested = tested.after
        assert TARGETS[tested.name] is tested


# --- inputs ---------------------------------------------------------------------------------------


def test_a_build_may_use_up_its_sample_but_not_the_inputs_of_the_run(tested: Target) -> None:
    sample_inputs, inputs = [matrix()], [matrix()]
    with torch.no_grad():
        built = tested.build(lambda x: x.add_(1), sample_inputs)
        assert inputs[0].tolist() == matrix().tolist()
        built.function(*inputs)
    assert inputs[0].tolist() == (matrix() + 1).tolist()


# --- aot: a user's function is traced like a program, and with a ShapeEnv -------------------------


def traced(function: Function, program: Program) -> object:
    """AOTAutograd's graphs of a function with their metadata, or its error."""
    torch.manual_seed(0)
    FakeTensorMode.cache_clear()
    build = AOT.build(function, input_tensors(program))
    seen = observe(build.function, input_tensors(program))
    return repr(seen.error), [
        (stage.graph.code, [repr(node.meta.get("val")) for node in stage.graph.graph.nodes])
        for stage in build.stages
    ]


def test_a_function_of_a_user_has_the_graphs_of_a_program() -> None:
    for seed in range(3):
        for program in sample(swarm(seed), seed, 4):
            function = ProgramFunction(program)
            assert traced(function.__call__, program) == traced(function, program)


@pytest.mark.parametrize("reads", [torch.nonzero, torch.Tensor.item, torch.Tensor.unique])
def test_data_dependent_shapes_are_refused_as_without_a_shape_env(reads: Function) -> None:
    function = AOT.build(reads, [torch.ones(1)]).function
    refusals = (DynamicOutputShapeException, DataDependentOutputException)
    with pytest.raises(refusals, match=r"aten\."):
        function(torch.ones(1))


def test_only_outputs_that_are_merged_inputs_may_be_other_objects() -> None:
    base = torch.zeros(2)
    case = Case.of_function(
        lambda x, y, z: (x.add_(1), z), [base, base.view(1, 2).detach(), torch.zeros(3)]
    )
    report = run_trial(case, AOT).judgement.reports["objects"]
    (documented,) = report.documented
    assert (documented.difference.place, documented.limitation.name) == (
        "output 0, input 0",
        f"does not promise '{Promise.IDENTITY.value}'",
    )
    # The write to z is lost: once x and y are merged, AOTAutograd writes another input. Torch 2.15
    # is right (`aliasproof/corpus/bugs/aot_autograd/renumbered-input.txt`).
    lost = ["output 1, input 2"] if torch.__version__.startswith("2.13.") else []
    assert [each.place for each in report.violations] == lost
