"""Attribution of a user's target: to the user's code, or to a layer of torch below it."""

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
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.check_result import Check, TargetResult
from aliasproof.oracles.verdict import Verdict, Violation
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.user_targets import of_value
from tests.short_programs import known_bug

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
    assert result_of(outcome).wrong_part == wrong_part


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
    result = result_of(outcome)
    assert not result.violated
    if target is does_nothing:  # Dynamo does not have this bug
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
