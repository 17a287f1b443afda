"""Variant *as-written*: Dynamo captures functions of torch, and passes on such calls run."""

from dataclasses import replace

import pytest
import torch

from aliasproof.campaigns.store.plan import Shard
from aliasproof.generators.rules.derived import drawn_rules
from aliasproof.generators.rules.plain_matches import USUAL, plain_match
from aliasproof.generators.sites.all_sites import recording
from aliasproof.ir.errors import UserError
from aliasproof.ir.ordinary_syntax import ordinary_source
from aliasproof.ir.program import Program
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, Spent, run_target
from aliasproof.targets.registry import target as target_named
from tests.short_programs import program_of, view
from tests.targets.conftest import stages_of, trial_of

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
    *_, of_functions = drawn_rules()
    (rule,) = (name for name in of_functions if "split_cat_to_slices(" in name)
    program = plain_match(rule, USUAL, 0)
    assert isinstance(program, Program)
    assert ".split(" in ordinary_source(program)
    target = target_named("inductor-fx:as-written:pre_grad_fusion_options=all")
    with recording() as recorder:
        run_target(Case.of(program), target, Spent())
    assert rule in recorder.fired


def test_such_patterns_are_drawn_for_this_variant_alone() -> None:
    shard = Shard(0, "inductor-fx:as-written")
    assert shard.features().written
    assert not replace(shard, target="inductor-fx").features().written
