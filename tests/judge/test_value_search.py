"""Values for a difference that only *equivalence* sees: found, reported, and put into a program."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.checks.check import check
from aliasproof.ir.program import Program
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case
from aliasproof.judge.value_search import Budget
from aliasproof.oracles.contract import Contract, Promise, Waiver
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build, Function, Target


def becomes(other: Function) -> Target:
    """A target that computes another function."""

    def build(function: Function, inputs: Sequence[Tensor]) -> Build:
        graph = make_fx(other)(*inputs)
        return Build(graph, [Stage("planted", graph, functional=False)])

    return Target("planted", "for this test", Contract(), build, "")


def searched(function: Function, other: Function, *inputs: Tensor) -> Examination:
    case = Case.of_function(function, list(inputs))
    return examine(case, becomes(other), search=Budget(seconds=1e9))


def vector() -> Tensor:
    return torch.arange(1.0, 5)


# Right for 1, 2, 3, 4, and wrong for other values.
SHOWN: dict[str, tuple[Function, Function]] = {
    "infinity": (lambda x, y: x + y - y, lambda x, y: x + 0),
    "the sign of a zero": (lambda x, y: x + 0, lambda x, y: x * 1),
    "negative numbers": (lambda x, y: x.clone(), lambda x, y: x.relu()),
    "equal elements": (lambda x, y: (x == y).float(), lambda x, y: (x == y + 20).float()),
    "a constant of the program": (lambda x, y: (x == 12345) + y, lambda x, y: (x == 12346) + y),
    "only in one storage": (lambda x, y: y.abs() + x, lambda x, y: y + x),
}


@pytest.mark.parametrize("name", SHOWN)
def test_values_are_found(name: str) -> None:
    found = searched(*SHOWN[name], vector(), vector() + 10)
    assert not found.failed
    assert found.shown is not None
    assert found.shown.violations[0].oracle == "values"
    (violation,) = found.reports["equivalence"].violations
    assert "input" in str(violation.evidence["values that show it"])
    assert violation.evidence["eager then"] != violation.evidence["target then"]


def test_what_no_value_shows_is_latent() -> None:
    found = searched(lambda x: (x + 1 & 0) + x, lambda x: (x + 2 & 0) + x, torch.arange(4))
    assert found.shown is None
    report = found.reports["equivalence"]
    assert (report.verdict, report.violations) == (Verdict.UNKNOWN, ())
    assert report.reason == (
        "not shown equal: the symbolic values of output 0 differ, and no values of 80 runs show it"
    )
    (violation,) = report.suspected
    assert violation.evidence["values that show it"] == "none in 80 runs: latent"
    assert found.suspicious
    assert found.symptom is not None
    assert found.symptom.latent


def test_a_check_calls_wrong_only_what_values_show() -> None:
    target = becomes(lambda x: (x + 2 & 0) + x)
    outcome = check(lambda x: (x + 1 & 0) + x, torch.arange(4), [target])
    (result,) = outcome.results.values()
    assert result.reports["equivalence"].verdict is Verdict.UNKNOWN
    assert outcome.exit_status() == 0


def test_where_another_promise_is_broken_values_are_searched_too() -> None:
    """Its outputs share memory, and values are equal by a law of arithmetic."""

    def other(x: Tensor) -> tuple[Tensor, Tensor]:
        made = (x + 2 & 0) + x
        return made, made.view(2, 2)

    case = Case.of_function(lambda x: ((x + 1 & 0) + x, x.view(2, 2) + 0), [torch.arange(4)])
    found = examine(case, becomes(other), search=Budget(), every_oracle=True)
    assert found.failed
    assert found.reports["equivalence"].verdict is Verdict.UNKNOWN


def test_of_other_arithmetic_the_sign_of_a_zero_is_no_witness() -> None:
    function, other = SHOWN["the sign of a zero"]
    waiver = Waiver(Promise.EQUIVALENCE, "for this test")
    target = replace(becomes(other), contract=Contract((waiver,)))
    found = examine(Case.of_function(function, [vector(), vector()]), target, search=Budget())
    assert found.shown is None
    assert found.reports["equivalence"].verdict is Verdict.UNKNOWN


def test_nothing_is_searched_without_a_difference_or_without_a_budget() -> None:
    case, right = Case.of_function(lambda x: x + 0, [vector()]), becomes(lambda x: x + 0)
    assert examine(case, right, search=Budget()).shown is None
    assert examine(case, becomes(lambda x: x * 1)).shown is None


def test_the_search_repeats_and_keeps_to_its_budget() -> None:
    functions = SHOWN["equal elements"]
    one, other = (searched(*functions, vector(), vector() + 10).shown for _ in range(2))
    assert one is not None
    assert other is not None
    assert (one.runs, one.violations) == (other.runs, other.violations)
    case = Case.of_function(functions[0], [vector(), vector() + 10])
    too_few = Budget(runs=one.runs - 1)
    assert examine(case, becomes(functions[1]), search=too_few).shown is None


def test_inputs_that_share_a_storage_get_one_filling() -> None:
    base = torch.arange(1.0, 7)
    found = searched(lambda x, y: x + y[0], lambda x, y: x.abs() + y[0], base[:4], base[2:])
    assert found.shown is not None
    assert len(found.shown.data.storages) == 1
    told = found.reports["equivalence"].violations[0].evidence["values that show it"]
    assert str(told).startswith("the storage of input 0 = ")


def test_indices_out_of_range_are_passed_over() -> None:
    index = torch.tensor([0, 1])
    found = searched(lambda x, i: x[i].abs(), lambda x, i: x[i] + 0, vector(), index)
    assert found.shown is not None


def test_a_program_with_the_values_fails_in_results(program: Callable[..., Program]) -> None:
    """Torch's inverse of `expand` is `base + (new - base)`, which is NaN for infinity."""
    text = "v0 = aten.expand.default(x0, [1, 4])\naten.copy_.default(v0, x1)\nreturn (x0,)"
    written = program(text, (4,), (1, 4))
    target = TARGETS["functionalize"]
    found = examine(Case.of(written), target, search=Budget())
    assert not found.failed
    assert found.shown is not None
    shown = found.shown.as_program(written)
    assert shown == replace(written, storages=shown.storages)
    assert examine(Case.of(shown), target).failed


def test_check_tells_the_values() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.expand(1, 4).copy_(y)
        return x

    result = check(function, [vector(), vector()], ["functionalize"]).results["functionalize"]
    evidence = result.reports["equivalence"].violations[0].evidence
    assert str(evidence["values that show it"]).endswith(" = inf everywhere; the others as given")
    assert evidence["target then"] == "output 0: nan"
