"""Symptoms, and which target is at fault: a layer of torch, or code of a user."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, fx

from aliasproof.campaigns.run import shard as shards
from aliasproof.campaigns.run.shard import ShardResult
from aliasproof.campaigns.store.plan import Shard
from aliasproof.checks.check import check, check_target
from aliasproof.checks.preparation import prepare
from aliasproof.ir.errors import Rejected
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom, at_fault, shows
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.check_result import Check, TargetResult
from aliasproof.oracles.contract import Contract, Precondition, Promise, Waiver
from aliasproof.oracles.verdict import Verdict, Violation
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.target import Target
from aliasproof.targets.user_targets import of_value
from tests.short_programs import known_bug, without

WRONG_VALUE = Symptom("planted", "values", "wrong value")


loses_zero = without("aten.zero_.default")


def crash(program: Program) -> Program:
    raise RuntimeError("planted")


def crash_again(program: Program) -> Program:
    raise ValueError("planted again")


def reject(program: Program) -> Program:
    raise Rejected("not for this")


def right(program: Program) -> Program:
    return program


@pytest.fixture
def zeroed(program: Callable[..., Program]) -> Program:
    return program("v0 = aten.add.Scalar(x0, 1)\naten.zero_.default(v0)\nreturn (v0,)", (4,))


# --- shows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewrite", "symptom", "shown"),
    [
        (loses_zero, WRONG_VALUE, True),
        (loses_zero, replace(WRONG_VALUE, target="another"), False),
        (loses_zero, replace(WRONG_VALUE, oracle="inputs"), False),
        (loses_zero, replace(WRONG_VALUE, kind="wrong number of outputs"), False),
        (right, WRONG_VALUE, False),
        (crash, WRONG_VALUE, False),
        (crash, Symptom("planted", "errors", "raises RuntimeError: planted"), True),
    ],
)
def test_a_failure_shows_its_symptom_and_no_other(compiler, zeroed, rewrite, symptom, shown):
    assert shows(zeroed, compiler(rewrite), symptom) is shown


def test_only_the_main_failure_is_the_symptom(compiler, program) -> None:
    both = program("aten.zero_.default(x0)\nreturn (x0,)", (4,))
    faulty = compiler(loses_zero)
    assert shows(both, faulty, WRONG_VALUE)
    assert not shows(both, faulty, Symptom("planted", "inputs", "input ends wrong"))


def test_an_undefined_program_shows_nothing(compiler, program) -> None:
    undefined = program(
        "v0 = aten.expand.default(x0, [3, 4])\naten.add_.Scalar(v0, 1)\nreturn (x0,)", (4,)
    )
    assert not shows(undefined, compiler(without("aten.add_.Scalar")), WRONG_VALUE)


def test_a_failure_that_is_not_reproduced_shows_nothing(compiler, zeroed: Program) -> None:
    turns = itertools.cycle([zeroed, loses_zero(zeroed)])
    flaky = compiler(lambda program: next(turns))
    assert [shows(zeroed, flaky, WRONG_VALUE) for _ in range(4)] == [False] * 4


def test_a_failure_in_another_place_the_second_time_shows_nothing(compiler, program) -> None:
    two = program("v0 = aten.neg.default(x0)\nv1 = aten.neg.default(x0)\nreturn v0, v1", (4,))
    turns = itertools.cycle([("x0", "v1"), ("v0", "x0")])
    assert not shows(
        two, compiler(lambda program: replace(program, outputs=next(turns))), WRONG_VALUE
    )


# --- who is at fault ------------------------------------------------------------------------------


def layer_at_fault(program: Program, tested: Target) -> str:
    case = Case.of(program)
    trial = run_trial(case, tested)
    attributed, violation = at_fault(case, tested, trial, trial.judgement.violations[0])
    assert violation == run_trial(case, attributed).judgement.violations[0]
    return attributed.name


NOTHING = Contract(preconditions=(Precondition("never", "for this test", lambda trace: False),))
# Rewrites of targets that build on each other, the first one first; the contract; and the index of
# the target at fault.
LAYERS = {
    "a target that builds on none": ([loses_zero], None, 0),
    "the earliest with the same failure": ([loses_zero] * 3, None, 0),
    "none before a right one": ([loses_zero, right, loses_zero], None, 2),
    "none that raises": ([crash, loses_zero], None, 1),
    "one that raises, for another error": ([crash, crash_again], None, 0),
    "none whose precondition is not met": ([loses_zero, loses_zero], NOTHING, 1),
    "none that rejects the program": ([reject, loses_zero], None, 1),
}


@pytest.mark.parametrize(("rewrites", "contract", "number"), LAYERS.values(), ids=LAYERS)
def test_at_fault_is(compiler, zeroed, rewrites, contract, number):
    tested = compiler(rewrites[0], "0", contract=contract)
    for index, rewrite in enumerate(rewrites[1:], 1):
        tested = compiler(rewrite, str(index), after=tested)
    assert layer_at_fault(zeroed, tested) == str(number)


@pytest.fixture
def negated(program) -> tuple[Program, Program]:
    """A program, and the same with other strides of the result."""
    plain = program("v0 = aten.neg.default(x0)\nreturn (v0,)", (2, 3))
    lines = "v1 = aten.t.default(x0)\nv2 = aten.neg.default(v1)\nv3 = aten.contiguous.default(v2)"
    return plain, program(f"{lines}\nv0 = aten.t.default(v3)\nreturn (v0,)", (2, 3))


def test_an_earlier_target_that_breaks_another_promise_is_not_at_fault(compiler, negated):
    plain, restrided = negated
    first = compiler(lambda _: restrided, "first")
    assert layer_at_fault(plain, first) == "first"
    unchanged = lambda given: replace(given, outputs=("x0",))  # noqa: E731
    assert layer_at_fault(plain, compiler(unchanged, after=first)) == "planted"


def test_an_earlier_target_that_promises_nothing_is_passed_over(compiler, negated):
    plain, restrided = negated
    first = compiler(lambda _: restrided, "first")
    waiver = Contract(waivers=(Waiver(Promise.STRIDE, "for this test"),))
    second = compiler(lambda _: restrided, "second", after=first, contract=waiver)
    assert layer_at_fault(plain, compiler(lambda _: restrided, after=second)) == "first"
    second = compiler(right, "second", after=first)
    assert layer_at_fault(plain, compiler(lambda _: restrided, after=second)) == "planted"


def test_a_program_shows_the_symptom_of_the_target_at_fault(compiler, zeroed: Program) -> None:
    tested = compiler(loses_zero, after=compiler(loses_zero, "first"))
    assert shows(zeroed, tested, replace(WRONG_VALUE, target="first"))
    assert not shows(zeroed, tested, WRONG_VALUE)


@known_bug
def test_what_functionalize_breaks_is_not_the_fault_of_those_that_build_on_it(program) -> None:
    expanded = program(
        "v0 = aten.expand.default(x0, [3, 4])\naten.zero_.default(v0)\nreturn (x0,)", (4,)
    )
    assert layer_at_fault(expanded, target("fx-reinplace")) == "functionalize"
    for name in ("functionalize", "fx-reinplace"):
        symptom = replace(WRONG_VALUE, target=name)
        assert shows(expanded, target("fx-reinplace"), symptom) is (name == "functionalize")


# --- a layer that is called in another way --------------------------------------------------------


def test_a_layer_is_at_fault_only_if_it_breaks_the_same_promise(compiler, zeroed: Program) -> None:
    whole = compiler(loses_zero, "whole")
    for rewrite, name in (
        (loses_zero, "layer"),
        (right, "whole"),
        (crash, "whole"),  # an error does not explain a wrong value
    ):
        assert layer_at_fault(zeroed, replace(whole, layer=compiler(rewrite, "layer"))) == name


def test_aotautograd_is_not_blamed_for_functionalization(program) -> None:
    body = "v0 = aten.unfold.default(x0, 0, 1, 2)\naten.add_.Scalar(v0, 1)\nreturn (x0,)"
    assert layer_at_fault(program(body, (2,)), target("aot")) == "functionalize"


# --- a user's target: the user's code is at fault, or a layer below it ----------------------------


aten = torch.ops.aten


def does_nothing(graph: fx.GraphModule) -> None:
    pass


def drop_epilogue(graph: fx.GraphModule) -> None:
    for node in graph.graph.find_nodes(op="call_function", target=aten.copy_.default):
        graph.graph.erase_node(node)


def adds_for_multiplies(graph: fx.GraphModule) -> None:
    for node in graph.graph.find_nodes(op="call_function", target=aten.mul.Tensor):
        node.target = aten.add.Tensor


def wrong_backend(graph: fx.GraphModule, example_inputs: list[Tensor]) -> Callable[..., object]:
    return lambda *args: [output + 1 for output in graph(*args)]


def right_backend(graph: fx.GraphModule, example_inputs: list[Tensor]) -> Callable[..., object]:
    return graph.forward


def plain(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def through_expand(x: Tensor) -> Tensor:
    """Wrong in 2.13, since AOTAutograd adds up the copies."""
    x.expand(3, 4).zero_()
    return x + 0


def result_of(outcome: Check) -> TargetResult:
    (result,) = outcome.results.values()
    return result


@pytest.mark.parametrize(
    ("target", "wrong_part"),
    [
        (drop_epilogue, "your pass `drop_epilogue`"),
        (adds_for_multiplies, "your pass `adds_for_multiplies`"),
        (wrong_backend, "your backend `wrong_backend`"),
    ],
)
def test_a_wrong_pass_is_named(target: Callable[..., object], wrong_part: str) -> None:
    outcome = check(plain, torch.arange(4.0), [target])
    assert outcome.exit_status() == 1
    assert {result.wrong_part for result in outcome.results.values()} == {wrong_part}


def test_a_wrong_pass_on_a_graph_with_a_constant_is_named() -> None:
    def function(x: Tensor) -> Tensor:
        x[x > 2] = 2.0
        return x + 1

    (right,) = check(function, torch.arange(4.0), [does_nothing]).results.values()
    assert not right.violations
    outcome = check(function, torch.arange(4.0), [drop_epilogue])
    assert result_of(outcome).wrong_part == "your pass `drop_epilogue`"


def test_a_wrong_pass_on_a_graph_of_training_is_named() -> None:
    plain_target = of_value(adds_for_multiplies)
    (grad,) = [variant for variant in plain_target.variants if variant.name == "grad"]
    target = replace(plain_target.with_(grad), varies=())
    prepared = prepare(lambda x: x * 3, torch.arange(4.0))
    assert check_target(prepared, target).wrong_part == "your pass `adds_for_multiplies`"


@known_bug
@pytest.mark.parametrize("target", [does_nothing, right_backend])
def test_a_bug_of_torch_fails_no_code_of_a_user(target: Callable[..., object]) -> None:
    outcome = check(through_expand, torch.arange(1.0, 5), [target])
    assert outcome.exit_status() == 0
    assert not any(result.violated for result in outcome.results.values())
    if target is does_nothing:  # Dynamo does not have this bug
        result = result_of(outcome)
        values = result.reports["values"]
        assert (values.verdict, values.violations) == (Verdict.UNKNOWN, ())
        assert [violation.kind for violation in values.inherited] == ["wrong value"]
        assert values.reason == result.reports["inputs"].reason
        assert values.reason.startswith(
            "not yours, since functionalize is wrong before your pass `does_nothing`: wrong value"
        )


@known_bug
def test_beside_a_bug_of_torch_a_wrong_pass_is_still_wrong() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        return through_expand(x).clone()

    inputs = [torch.arange(1.0, 5), torch.arange(4.0)]
    result = result_of(check(function, inputs, [drop_epilogue]))
    assert [violation.place for violation in result.violations][:1] == ["input 'y'"]
    assert result.wrong_part == "your pass `drop_epilogue`"
    assert result.reports["values"].inherited


@known_bug
def test_in_a_campaign_it_is_counted_and_is_no_finding(program, monkeypatch):
    text = "v0 = aten.expand.default(x0, [3, 4])\naten.zero_.default(v0)\nreturn (x0,)"
    written, own = program(text, (4,)), of_value(does_nothing)
    monkeypatch.setattr(
        shards, "target_named", lambda name: {own.name: own}.get(name, TARGETS["aot"])
    )
    result = ShardResult(Shard(0, own.name, 1))
    shards._add(written, examine(Case.of(written), own), result)
    assert (result.statistics.violating, result.statistics.not_yours) == (1, 1)
    assert not result.failures
    # A suspicion is not counted as violating, so it is not subtracted either.
    suspected = Violation("equivalence", "wrong symbolic value", "output 0")
    aot = TARGETS["aot"]
    suspicion = Examination(Case.of(written), own, {}, at_fault=aot, main=suspected)
    shards._add(written, suspicion, result)
    assert (result.statistics.violating, result.statistics.wrong) == (1, 0)
