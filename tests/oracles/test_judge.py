"""All oracles on one run: none is skipped, and the most visible symptom comes first."""

import pytest
import torch

from aliasproof.oracles.contract import Contract, Precondition, Refusal
from aliasproof.oracles.judge import ON_RESULTS, all_not_applicable, judge, oracle_names
from aliasproof.oracles.verdict import Verdict
from tests.oracles.scenes import ALL, runs

X = torch.arange(6.0).view(2, 3)
# Those of paths and of guarded buffers are left out: outputs of a function on tensors have numbers.
NAMES = [name for name in ON_RESULTS if name not in ("bounds", "uninitialised", "structure")]


def failing(*inputs: torch.Tensor) -> object:
    raise RuntimeError("no")


def verdicts(judgement) -> list[Verdict]:
    return [report.verdict for report in judgement.reports.values()]


def test_a_right_run_holds_in_every_respect() -> None:
    judgement = judge(ALL, *runs(lambda x: x.add_(1)[1:], lambda x: x.add_(1)[1:], [X]))
    assert list(judgement.reports) == NAMES
    on_tensors = oracle_names(paths=False, memory=False)
    assert [it for it in on_tensors if it in ON_RESULTS] == NAMES
    assert set(verdicts(judgement)) == {Verdict.HOLDS}
    assert judgement.violations == []
    assert judgement.documented == []


@pytest.mark.parametrize(
    ("oracle", "eager", "target"),
    [
        ("errors", lambda x: x, failing),
        ("values", lambda x: x + 1, lambda x: x + 2),
        ("inputs", lambda x: (x.add_(1), None)[1], lambda x: None),
        ("aliasing", lambda x: x + 0, lambda x: x.view_as(x)),
        ("objects", lambda x: (y := x + 1, y.view_as(y)), lambda x: (y := x + 1, y)),
        ("metadata", lambda x: x + 0, lambda x: (x + 0).double()),
    ],
)
def test_each_oracle_is_asked(oracle: str, eager, target) -> None:
    judgement = judge(ALL, *runs(eager, target, [X]))
    assert {violation.oracle for violation in judgement.violations} == {oracle}
    assert judgement.reports[oracle].verdict is Verdict.VIOLATED


def test_the_most_visible_symptom_comes_first() -> None:
    judgement = judge(ALL, *runs(lambda x: x.add_(1) + 0, lambda x: x.view(6)[1:].view(5), [X]))
    assert [violation.oracle for violation in judgement.violations] == [
        "inputs",
        "aliasing",
        "metadata",
    ]
    judgement = judge(ALL, *runs(lambda x: x.add_(1) + 0, lambda x: x.view(2, 3), [X]))
    assert [violation.oracle for violation in judgement.violations] == [
        "values",
        "inputs",
        "aliasing",
    ]


@pytest.mark.parametrize(
    ("eager", "target"), [(lambda x: x, failing), (failing, lambda x: x), (failing, failing)]
)
def test_after_an_error_there_is_nothing_to_compare(eager, target) -> None:
    judgement = judge(ALL, *runs(eager, target, [X]))
    assert list(judgement.reports) == NAMES
    assert verdicts(judgement)[1:] == [Verdict.NOT_APPLICABLE] * (len(NAMES) - 1)
    assert all(report.reason for report in list(judgement.reports.values())[1:])
    assert judgement.documented == []


def test_after_a_documented_refusal_there_is_nothing_to_compare() -> None:
    refusal = Refusal("", "no", "it says no", lambda trace: True, raised_by=(__name__,))
    contract = Contract(refusals=(refusal,))
    judgement = judge(contract, *runs(lambda x: x, failing, [X]))
    assert verdicts(judgement) == [Verdict.DOCUMENTED, *[Verdict.NOT_APPLICABLE] * (len(NAMES) - 1)]
    assert [found.limitation.reason for found in judgement.documented] == ["it says no"]


@pytest.mark.parametrize(
    ("eager", "target", "names"),
    [
        (lambda x: x + 1, lambda x: x + 2, ["values"]),
        (lambda x: x + 0, lambda x: x.view(6), ["aliasing", "metadata"]),
        (lambda x: x.add_(1)[0], lambda x: x[0] + 1, ["inputs", "aliasing"]),
    ],
)
def test_without_the_precondition_every_difference_is_documented(eager, target, names):
    contract = Contract(preconditions=(Precondition("never", "a reason", lambda trace: False),))
    judgement = judge(contract, *runs(eager, target, [X]))
    assert judgement.violations == []
    assert {found.limitation.name for found in judgement.documented} == {"requires 'never'"}
    assert list(dict.fromkeys(found.difference.oracle for found in judgement.documented)) == names


def test_an_unmet_precondition_alone_is_no_difference() -> None:
    contract = Contract(preconditions=(Precondition("never", "a reason", lambda trace: False),))
    assert set(verdicts(judge(contract, *runs(lambda x: x, lambda x: x, [X])))) == {Verdict.HOLDS}


def test_what_is_excluded_is_neither_right_nor_wrong() -> None:
    judgement = all_not_applicable("not for this")
    assert tuple(judgement.reports) == ON_RESULTS
    assert set(verdicts(judgement)) == {Verdict.NOT_APPLICABLE}
    assert {each.reason for each in judgement.reports.values()} == {"not for this"}


def test_outputs_without_number_or_tensor_are_judged_by_every_oracle() -> None:
    judgement = judge(ALL, *runs(lambda x: (x + 1, 1), lambda x: (x + 1,), [X]))
    assert [each.kind for each in judgement.violations] == ["wrong number of outputs"]
