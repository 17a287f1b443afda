"""Behind Dynamo: value hashes of the captured graph, functions of torch, and random numbers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx

from aliasproof.campaigns.publish.python_issue import confirm_python
from aliasproof.campaigns.publish.reproducer import render
from aliasproof.campaigns.store.plan import Shard
from aliasproof.checks.check import check
from aliasproof.generators.rules.derived import rules_of_torch
from aliasproof.generators.rules.plain_matches import USUAL, plain_match
from aliasproof.generators.sites.all_sites import recording
from aliasproof.ir.errors import UserError
from aliasproof.ir.ordinary_syntax import ordinary_source
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.examination import examine
from aliasproof.judge.python_case import PythonCase
from aliasproof.judge.trial import Case, Spent, run_target
from aliasproof.oracles.verdict import Report, Verdict, Violation
from aliasproof.targets import dynamo
from aliasproof.targets.registry import target
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Build, Function, Target
from tests.campaigns.made_findings import finding_of
from tests.scripts_here import confirm_here
from tests.short_programs import program_of, python_of, view
from tests.targets.conftest import stages_of, trial_of, vector

BEHIND_DYNAMO = ("dynamo", "aot-eager", "inductor-fx", "dynamo:symbolic")


def hidden(x: Tensor) -> Tensor:
    return (x + 1) * 0


def equivalence(function: Function, inputs: Sequence[Tensor], tested: Target) -> Report:
    examined = examine(Case.of_function(function, inputs), tested, attribute=False)
    assert examined.mistake is None
    assert not examined.failed
    return examined.reports["equivalence"]


@pytest.mark.parametrize("name", BEHIND_DYNAMO)
def test_a_captured_graph_stands_for_the_function(name: str) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x[1:].mul_(3)
        return {"sum": x + y, "view": x[:2], "input": y, "size": x.shape[0]}

    assert equivalence(program, [vector(), vector()], target(name)).verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("changes", "expected"), [(True, Verdict.VIOLATED), (False, Verdict.HOLDS)]
)
def test_a_wrong_graph_is_seen_behind_a_product_with_zero(changes: bool, expected: Verdict) -> None:
    def backend(graph: fx.GraphModule, _: object) -> Callable[..., object]:
        for node in graph.graph.nodes:
            if changes and 1 in node.args:
                node.args = (node.args[0], 2)
        graph.recompile()
        return graph

    def build(function: Function, inputs: object) -> Build:
        found = dynamo.compiled(function, backend)
        return Build(found, [], replay=found.replay)

    planted = replace(target("dynamo"), build=build)
    assert equivalence(hidden, [vector()], planted).verdict is expected


def out_of_order(x: Tensor) -> Tensor:
    torch.neg(x.t(), out=x.t())  # Dynamo takes no `out=` that is not contiguous
    return x + 1


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        pytest.param(
            lambda x: (x * 2) if (x + 1).sum().item() > 0 else x, [vector()], id="two graphs"
        ),
        pytest.param(out_of_order, [vector().view(2, 2)], id="one graph after a call in eager"),
        pytest.param(lambda x: x, [vector()], id="nothing to compile"),
    ],
)
def test_what_is_no_single_graph_is_not_judged(function: Function, inputs: list[Tensor]) -> None:
    report = equivalence(function, inputs, target("dynamo"))
    reason = "Dynamo runs a part of the function in Python, outside of a graph"
    assert (report.verdict, report.reason) == (Verdict.NOT_APPLICABLE, reason)


# --- as-written: Dynamo captures functions of torch -----------------------------------------------


PARTS = program_of(
    """
    v0, v1 = aten.split.Tensor(x0, 1)
    v2 = aten.cat.default([v0, v1], 1)
    aten.add_.Tensor(x0, 1)
    return (v2, x0)
    """,
    view(2, 3),
)
NOTHING = program_of("aten.t_.default(x0)\nreturn ()", view(2, 3))


@pytest.mark.parametrize("name", ["identity", "dynamo", "aot-eager", "inductor-fx"])
@pytest.mark.parametrize("program", [PARTS, NOTHING], ids=["parts", "no output"])
def test_what_is_compiled_means_the_same(name: str, program) -> None:
    assert not examine(Case.of(program), target_named(f"{name}:as-written")).failed


def test_the_graph_of_dynamo_calls_functions_of_torch() -> None:
    trial = trial_of(examine(Case.of(PARTS), target_named("dynamo:as-written")))
    (stage,) = stages_of(trial)
    assert stage.graph.graph.find_nodes(op="call_function", target=torch.cat)
    assert stage.graph.graph.find_nodes(op="call_method", target="split")


def test_passes_on_functions_of_torch_fire() -> None:
    target = target_named("inductor-fx:as-written:pre_grad_fusion_options=all")
    with recording() as recorder:
        run_target(Case.of(PARTS), target, Spent())
    assert any("normalize_cat_default" in site for site in recorder.fired)


def test_a_setting_starts_the_passes_with_these_names() -> None:
    target_named("inductor-fx:pre_grad_fusion_options=split_cat_pass+batch_relu")
    with pytest.raises(UserError, match="no pass 'split_cat'"):
        target_named("inductor-fx:pre_grad_fusion_options=split_cat")


def test_a_pattern_of_functions_is_drawn_as_calls_that_are_spelled_so() -> None:
    by_hand, *_ = rules_of_torch()
    (rule,) = (name for name in by_hand if "split_cat_to_slices(" in name)
    program = plain_match(rule, USUAL, 0)
    assert isinstance(program, Program)
    assert ".split(" in ordinary_source(program)
    target = target_named("inductor-fx:as-written:pre_grad_fusion_options=all")
    with recording() as recorder:
        run_target(Case.of(program), target, Spent())
    assert rule in recorder.fired


def test_such_patterns_are_drawn_for_this_variant_alone() -> None:
    shard = Shard(0, "inductor-fx:as-written")
    assert shard.features().variant == "as-written"
    assert not replace(shard, target="inductor-fx").features().variant


# --- random numbers that nothing reads are drawn as in eager --------------------------------------


LATER = """
v0 = aten.uniform_.default(x0)
v1 = aten.rand_like.default(x1)
v2 = aten.randint_like.default(x1, 100)
return (v2,)
"""
PYTHON = python_of("torch.rand(3)\nreturn torch.randint_like(x, 100)", "torch.ones(5)")


def draws_later(x: Tensor) -> Tensor:
    torch.rand(3)
    return torch.randint_like(x, 100)


@pytest.mark.parametrize("target", ["aot-eager", "aot"])
def test_a_program_holds(target: str) -> None:
    case = Case.of(program_of(LATER, view(2), view(3)))
    assert examine(case, target_named(target)).violations == []


def test_a_function_holds_also_as_called() -> None:
    found = check(draws_later, (torch.ones(5),), ["aot-eager"], grad=True)
    assert not any(result.violations for result in found.results.values())
    assert check(draws_later, (torch.ones(5),), ["aot-eager"]).exit_status() == 0


def test_a_python_program_holds_and_so_does_its_script() -> None:
    assert examine(PythonCase(PYTHON), target_named("aot-eager")).violations == []
    finding = finding_of(PYTHON, "aot-eager", "values", "wrong value", "out1")
    assert not confirm_python(finding).shown
    without = PythonProgram(PYTHON.source.replace("torch.rand(3)", "torch.ones(3)"))
    assert confirm_python(replace(finding, program=without)).ending == "exits 0"


def test_the_script_of_a_program_draws_as_eager(tmp_path: Path) -> None:
    path, target = tmp_path / "reproducer.py", target_named("aot-eager")
    violation = Violation("values", "wrong value", "output 0")
    path.write_text(render(program_of(LATER, view(2), view(3)), target, violation, exact=True))
    confirmation = confirm_here(path)
    assert (confirmation.shown, confirmation.ending) == (False, "exits 0"), confirmation.output
