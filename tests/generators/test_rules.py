"""Programs derived from rules of Inductor: the rule fires, and the situation occurs."""

import itertools
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._inductor import config

from aliasproof.generators.features import RULES_OF, Features
from aliasproof.generators.rules import operator_calls
from aliasproof.generators.rules.derived import (
    OF_OPERATORS,
    derive,
    groups_of,
    match_of,
    pair_of,
    rules_of_torch,
    shipped,
)
from aliasproof.generators.rules.matching import RAISES, refusal
from aliasproof.generators.rules.operator_calls import CALLS, operators, plain_call, tabled
from aliasproof.generators.rules.pattern_walk import in_place_forms
from aliasproof.generators.rules.plain_matches import (
    EMPTY,
    KINDS,
    NUMBER,
    OTHER_DTYPE,
    USUAL,
    find_match,
    has_kind,
    out_of_reach,
    plain_match,
    settings_of,
    variant_of,
)
from aliasproof.generators.rules.situations import BY_NAME, NAMES
from aliasproof.generators.scene import Counts, NoChoice, Pick
from aliasproof.generators.sites.all_sites import recording
from aliasproof.generators.sites.patterns import check_of, rules
from aliasproof.generators.strategies import _draw_outputs, sample
from aliasproof.ir.execution import ProgramFunction, run, seed_generators
from aliasproof.ir.program import Input, Program
from aliasproof.ir.serialization import dumps, loads
from aliasproof.ir.values import input_tensors
from aliasproof.targets.registry import target
from tests.generators.evidence import SHOWS, Evidence
from tests.short_programs import program_of, view

# Written by hand and traced; with one call, with several, and with a list; with two results.
SAMPLE = (
    "joint_graph.early_patterns/pointless_permute_pair(aten.permute.default)",
    "joint_graph.pass_patterns[1]/mul_softmax_pattern(aten.sub.Tensor)",
    "joint_graph.patterns/bmm_to_mm(aten.bmm)",
    "joint_graph.patterns/_sfdp_pattern_5_inference(aten.view.default)",
    "joint_graph.patterns/_sfdp_pattern_1_training(aten.view.default)",
    "post_grad.pass_patterns[1]/pointless_cumsum_replacement(aten.cumsum.default)",
    "post_grad.pass_patterns[2]/splitwithsizes_cat_replace(aten.cat)",
    "post_grad.pass_patterns[2]/addmm(aten.add)",
    "post_grad.pass_patterns[2]/register_partial_reduction_pattern.reuse_partial(aten.amax.default)",
)
# In the table of operators and not; of images, by index, with a list, in place, with two results.
OPERATORS = (
    "aten.addmm.default",
    "aten.avg_pool2d.default",
    "aten.constant_pad_nd.default",
    "aten.gather.default",
    "aten.hstack.default",
    "aten.logsumexp.default",
    "aten.mul_.Tensor",
    "aten.var_mean.correction",
)
DECOMPOSED = ("aten.logaddexp.default", "aten.huber_loss.default", "aten.trace.default")
ADD = "aten.add.Tensor"
OF_THE_ISSUE = 16  # situations
ONLY_RULES = Features(rules=100, groups=("view", "in-place"), scenarios=(), gradients=False)


def plain(rule: str, kind: str = USUAL, number: int = 0) -> Program:
    if rule.startswith(OF_OPERATORS):
        program = plain_call(rule, kind, number)
    else:
        program = plain_match(rule, kind, number)
    assert isinstance(program, Program), program
    return program


def fired(program: Program, name: str = "inductor-fx") -> frozenset[str]:
    """The sites that fire when Inductor compiles a program and runs its graph."""
    inputs = input_tensors(program)
    with recording() as recorder, torch.no_grad():
        seed_generators()
        built = target(name).build(ProgramFunction(program), input_tensors(program))
        built.function(*inputs)
        return recorder.take()[0]


@pytest.mark.parametrize(
    "rule",
    [
        "binary_folding_pass/binary_folding_init.folded_op(aten.add.Tensor)",
        "pass_patterns[0]/_register_weight_pack_pass.convolution(aten.convolution.default)",
        "pass_patterns[1]/_register_weight_pack_pass.linear(aten.mm.default)",
    ],
)
def test_a_rule_of_freezing_fires_where_weights_are_constants(rule: str) -> None:
    name = f"freezing_patterns.{rule}"
    assert name in fired(plain(name), "inductor-fx:freezing")


def test_an_operator_is_put_in_place_where_its_result_is_copied_back() -> None:
    matches = {rule: plain_match(rule, USUAL, 0) for rule in in_place_forms()}
    programs = {rule: it for rule, it in matches.items() if isinstance(it, Program)}
    assert len(programs) >= 10
    fire = [rule for rule, it in programs.items() if rule in fired(it)]
    # A list whose results are each copied, and a list that an index writes.
    assert {"put in place/aten._foreach_mul.List", "put in place/aten.index_put.default"} <= {*fire}
    assert len(fire) >= len(programs) - 2


@pytest.mark.skipif(
    torch.__version__ >= "2.14",
    reason="from torch 2.14 on, no plain match of an attention with dropout fires its rule",
)
def test_a_dropout_that_drops_nothing_is_replaced() -> None:
    rule = "joint_graph.patterns/_sfdp_pattern_3_training(aten.view.default)"
    assert any(call.op == "aten.rand.default" for call in plain(rule).instructions)
    assert rule in fired(plain(rule))


def test_a_setting_that_a_check_asks_for_is_found() -> None:
    two_products = "post_grad.pass_patterns[1]/mm_plus_mm(aten.add)"
    assert find_match(two_products, USUAL, 0).setting == ("max_autotune", True)
    first = "joint_graph.patterns/_sfdp_pattern_1_inference(aten.view.default)"
    same_calls = find_match(
        "joint_graph.patterns/_sfdp_pattern_3_inference(aten.view.default)", USUAL, 0
    )
    assert same_calls.refused.startswith(f"{first} comes first")


@pytest.mark.parametrize("rule", [*SAMPLE, *DECOMPOSED])
def test_the_rule_fires_on_its_plain_match(rule: str) -> None:
    site = f"decomposition/{rule}" if rule in DECOMPOSED else rule
    assert site in fired(plain(rule))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_plain_call_has_the_call_and_eager_accepts_it(name: str) -> None:
    for number in range(CALLS):
        program = plain(name, number=number)
        assert name in {call.op for call in program.instructions}
        assert all(isinstance(it, Tensor) for it in run(program, input_tensors(program)))
    assert len(plain(name, number=3)) > 1


def _derived(rule: str, situation: str, seed: int = 0) -> Evidence:
    pick = Pick(random.Random(seed).randint)
    weaving = derive(pick, rule, BY_NAME[situation], Counts())
    return Evidence(weaving, frozenset(view.dtype for view in plain(rule).inputs))


def _tried(rule: str, situation: str) -> str:
    """Whether the situation is "there" for one of eight seeds, or "refused" for all of them."""
    reasons = []
    for seed in range(8):
        try:
            if SHOWS[situation](_derived(rule, situation, seed)):
                return "there"
        except NoChoice as error:
            reasons.append(str(error) or error.__cause__)
    return "refused" if len(reasons) == 8 and all(reasons) else "neither"


@pytest.mark.parametrize("rule", [*SAMPLE, ADD])
def test_each_situation_is_there_or_has_a_reason(rule: str) -> None:
    tried = {name: _tried(rule, name) for name in NAMES}
    assert "neither" not in tried.values()
    met = {name for name in NAMES if tried[name] == "there"}
    assert {"alone", "operand written after", "match twice"} <= met or not plain(rule).inputs
    assert rule != ADD or met == set(NAMES)


def test_what_is_measured_is_not_there_by_itself() -> None:
    """A plain match has no situation except that it is alone."""
    rule = "post_grad.pass_patterns[2]/addmm(aten.add)"
    derived = _derived(rule, "alone")
    seen = {name for name, shows in SHOWS.items() if shows(derived)}
    assert seen <= {"alone", "operand expanded", "operand transposed"}
    assert tuple(SHOWS) == NAMES
    assert len(SHOWS) == OF_THE_ISSUE


@pytest.mark.parametrize("variant", ["", *RULES_OF])
def test_numbers_walk_through_all_pairs(variant: str) -> None:
    groups = groups_of(variant)
    for index, names in enumerate(groups):
        turns = range(index, len(groups) * len(names) * len(NAMES), len(groups))
        drawn = [pair_of(turn, variant) for turn in turns]
        assert set(drawn) == {(rule, name) for rule in names for name in NAMES}
        # A short run has many rules, not many situations of few.
        assert {rule for rule, _ in drawn[: len(names)]} == {*names}
        assert len({situation for _, situation in drawn[: len(NAMES)]}) == len(NAMES)


def test_each_rule_is_drawn_where_it_can_fire() -> None:
    drawn = [{*itertools.chain(*groups_of(variant))} for variant in ("", *RULES_OF)]
    assert {*itertools.chain(*rules_of_torch())} == set.union(*drawn)
    plain = drawn[0]
    for variant, names in zip(RULES_OF, drawn[1:], strict=True):
        own = {rule for rule in names if variant_of(rule) == variant}
        assert own
        assert not own & plain


@pytest.mark.parametrize("seed", range(6))
def test_only_a_situation_reads_or_returns_inner_values(seed: int) -> None:
    """With another reader of an inner value, the rule would not fire."""
    rule, pick = "post_grad.pass_patterns[2]/addmm(aten.add)", Pick(random.Random(seed).randint)
    scene = derive(pick, rule, BY_NAME["alone"], Counts()).steps.scene
    assert scene.hidden
    assert not scene.hidden & {*scene.newest_first()}
    for _ in range(20):
        outputs = _draw_outputs(pick, scene)
        assert not outputs or {*scene.wanted} <= {*outputs}
    inner = derive(pick, rule, BY_NAME["inner value read"], Counts()).steps.scene
    assert {*inner.wanted} <= {*inner.newest_first()}


def test_programs_depend_on_seed_and_number_alone() -> None:
    programs = list(sample(ONLY_RULES, 3, 6))
    assert programs == list(sample(ONLY_RULES, 3, 6))
    assert programs[:3] == list(sample(ONLY_RULES, 3, 3))
    counts = Counts()
    list(sample(ONLY_RULES, 3, 6, counts))
    assert sum(counts.pairs.values()) >= 5


def test_a_program_without_the_switch_is_no_derived_one() -> None:
    counts = Counts()
    list(sample(replace(ONLY_RULES, rules=0), 3, 6, counts))
    assert not counts.pairs


def test_a_derived_program_is_stored_and_read_again() -> None:
    program = plain("joint_graph.patterns/_sfdp_pattern_1_training(aten.view.default)")
    assert any(call.op.startswith("prims.") for call in program.instructions)
    assert loads(dumps(program)) == program
    assert all(isinstance(it, Tensor) for it in run(program, input_tensors(program)))


def test_a_rule_that_no_program_meets_says_why() -> None:
    reasons = {out_of_reach(rule) for rule in rules()} - {None}
    assert len(reasons) >= 4
    assert all(
        "match" in reason or "draw" in reason or "run" in reason for reason in reasons if reason
    )


def test_a_kind_is_what_an_input_is_like() -> None:
    known = {view.dtype for view in plain(ADD).inputs}
    assert any(0 in view.sizes for view in plain(ADD, EMPTY).inputs)
    assert any(view.sizes == () for view in plain(ADD, NUMBER).inputs)
    assert any(view.dtype not in known for view in plain(ADD, OTHER_DTYPE).inputs)
    assert len(KINDS) == 4


def test_most_operators_of_the_tables_are_drawn_and_others_have_a_reason() -> None:
    assert operators() in groups_of("")
    assert len(operators()) > 700
    for name in set(tabled()) - set(operators()):
        assert operator_calls.out_of_reach(name)
    with pytest.raises(NoChoice, match="autograd calls it"):
        _derived("aten.tanh_backward.default", "alone")


@pytest.mark.parametrize(
    ("kind", "operand"),
    [
        (EMPTY, view(2, 0)),
        (NUMBER, view()),
        (OTHER_DTYPE, view(2, dtype=torch.int64)),
        (USUAL, view(2)),
    ],
)
def test_a_program_has_the_kind_of_its_operand_and_no_other(kind: str, operand: Input) -> None:
    usual = program_of("v0 = aten.neg.default(x0)\nreturn (v0,)", view(2))
    program = program_of("v0 = aten.neg.default(x0)\nreturn (v0,)", operand)
    assert {it for it in KINDS if has_kind(program, it, usual)} == {kind, USUAL}


def test_the_matches_of_the_package_are_those_of_this_torch() -> None:
    """If not, `python tests/generators/ship_matches.py` writes them."""
    if not shipped().rules:
        pytest.skip(f"none come with the package for torch {torch.__version__}")
    assert shipped().rules == rules_of_torch()
    by_hand, _, traced = shipped().rules
    rules_found = {rule for rule in (*by_hand, *traced) if variant_of(rule) != "freezing"}
    assert {*shipped().numbers} == rules_found
    for rule in rules_found - {*in_place_forms()}:
        if variant_of(rule) == "as-written":
            continue
        match = match_of(rule, USUAL, 0)
        if isinstance(match, Program):
            entry = rules()[rule]
            needed = [{}, *({name: value} for name, value in settings_of(check_of(entry)))]
            reasons = []
            for settings in needed:
                with config.patch(settings):
                    reasons.append(refusal(entry, match))
            assert {None, RAISES} & {*reasons}, rule
