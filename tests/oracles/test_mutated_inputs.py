"""Oracle *inputs*: what a target leaves in its inputs, and in the bytes around them."""

from __future__ import annotations

import pytest
import torch

from aliasproof.oracles.contract import Promise
from aliasproof.oracles.inputs import judge
from aliasproof.oracles.values import OTHER_ZERO
from aliasproof.oracles.verdict import HOLDS, Verdict
from tests.oracles.scenes import ALL, runs, waiving

NAN = float("nan")


def vector() -> torch.Tensor:
    return torch.arange(1.0, 5)


def around() -> torch.Tensor:
    """Elements 1 and 3 of a storage of five."""
    return torch.arange(1.0, 6)[1:4:2]


def write_at(tensor: torch.Tensor, position: int) -> torch.Tensor:
    return tensor.as_strided((1,), (1,), position).fill_(99)


def test_an_input_that_stays_stale_is_seen() -> None:
    (violation,) = judge(ALL, *runs(lambda x: x.add_(1), lambda x: x + 1, [vector()])).violations
    assert (violation.oracle, violation.kind, violation.place) == (
        "inputs",
        "input ends wrong",
        "input 0",
    )
    assert violation.evidence["eager"] == "2.0"
    assert violation.evidence["target"] == "1.0"


def test_an_input_that_should_have_stayed_is_seen() -> None:
    report = judge(ALL, *runs(lambda x: x + 1, lambda x: x.add_(1), [vector()]))
    assert report.verdict is Verdict.VIOLATED


def test_one_wrong_element_of_the_second_input_is_seen() -> None:
    (violation,) = judge(
        ALL, *runs(lambda x, y: None, lambda x, y: y[3:].neg_(), [vector(), vector()])
    ).violations
    assert violation.place == "input 1"
    assert violation.evidence["first wrong index"] == [3]


def test_an_update_lost_between_inputs_that_share_is_seen() -> None:
    base = vector()
    report = judge(
        ALL,
        *runs(
            lambda x, y: x.add_(1), lambda x, y: (y.add_(1), x[:1].sub_(1)), [base[:2], base[1:3]]
        ),
    )
    assert [each.place for each in report.violations] == ["input 0", "input 1"]


@pytest.mark.parametrize("position", [0, 2, 4])
def test_a_byte_outside_the_view_that_changes_is_seen(position: int) -> None:
    report = judge(
        ALL, *runs(lambda x: x.add_(1), lambda x: (x.add_(1), write_at(x, position)), [around()])
    )
    (violation,) = report.violations
    assert (violation.kind, violation.place) == (
        "bytes outside the inputs change",
        "storage of input 0",
    )
    assert violation.evidence["first wrong byte"] in range(4 * position, 4 * position + 4)


def test_a_byte_outside_the_second_input_is_seen() -> None:
    report = judge(ALL, *runs(lambda x, y: None, lambda x, y: write_at(y, 2), [vector(), around()]))
    assert [each.place for each in report.violations] == ["storage of input 1"]


@pytest.mark.parametrize("position", [0, 2, 4])
def test_a_byte_outside_the_view_that_should_change_is_seen(position: int) -> None:
    report = judge(
        ALL, *runs(lambda x: (write_at(x, position), None)[1], lambda x: None, [around()])
    )
    assert [each.kind for each in report.violations] == ["bytes outside the inputs change"]


def test_a_byte_outside_the_view_that_changes_alike_is_not_blamed() -> None:
    assert (
        judge(ALL, *runs(lambda x: write_at(x, 2), lambda x: write_at(x, 2), [around()])) == HOLDS
    )


def test_bytes_that_another_input_shows_count_as_that_input() -> None:
    base = vector()
    report = judge(ALL, *runs(lambda x, y: None, lambda x, y: write_at(x, 3), [base[:2], base[2:]]))
    assert [(each.kind, each.place) for each in report.violations] == [
        ("input ends wrong", "input 1")
    ]


def test_the_storage_of_an_empty_input_is_watched_too() -> None:
    report = judge(ALL, *runs(lambda x: None, lambda x: write_at(x, 1), [vector()[:0]]))
    assert [each.kind for each in report.violations] == ["bytes outside the inputs change"]


def test_a_view_of_another_item_size_is_compared_by_its_own_elements() -> None:
    base = vector()
    bytes_ = base.view(torch.uint8)[:3]
    (violation,) = judge(ALL, *runs(lambda x: None, lambda x: x[2:].fill_(7), [bytes_])).violations
    assert violation.evidence["first wrong index"] == [2]


def test_a_storage_of_another_size_is_seen() -> None:
    (violation,) = judge(
        ALL, *runs(lambda x: None, lambda x: x.untyped_storage().resize_(32), [vector()])
    ).violations
    assert violation.kind == "storage has another size"
    assert violation.evidence == {"eager": "16 bytes", "target": "32 bytes"}


def test_values_are_compared_even_if_the_input_ends_with_another_shape() -> None:
    """Some targets do not promise the shape of an input, but still its values."""
    contract = waiving(Promise.INPUT_METADATA)
    report = judge(contract, *runs(lambda x: x.unsqueeze_(0).add_(1), lambda x: None, [vector()]))
    assert report.verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: None, id="nothing"),
        pytest.param(lambda x: x.mul_(NAN), id="NaN"),
        pytest.param(lambda x: x.cos_(), id="inexact"),
        pytest.param(lambda x: x[:0].zero_(), id="no elements"),
    ],
)
def test_the_same_mutation_is_not_blamed(function) -> None:
    assert judge(ALL, *runs(function, function, [vector()])) == HOLDS
    assert judge(ALL, *runs(function, function, [around()])) == HOLDS


def test_a_rounding_is_forgiven_only_where_an_op_leaves_it_open() -> None:
    def off(x: torch.Tensor) -> torch.Tensor:
        return x.copy_(torch.nextafter(x, torch.full_like(x, 9.0)))

    assert judge(ALL, *runs(lambda x: x.cos_(), lambda x: off(x.cos_()), [vector()])) == HOLDS
    assert (
        judge(ALL, *runs(lambda x: x.neg_(), lambda x: off(x.neg_()), [vector()])).verdict
        is Verdict.VIOLATED
    )


def test_a_rounding_in_the_storage_that_an_input_is_given_is_forgiven() -> None:
    def off(y: torch.Tensor) -> torch.Tensor:
        return torch.nextafter(y.cos(), torch.full_like(y, 9.0))

    inputs = [vector(), vector()]
    eager = lambda x, y: (x.set_(y.cos()), None)[1]  # noqa: E731
    assert judge(ALL, *runs(eager, lambda x, y: (x.set_(off(y)), None)[1], inputs)) == HOLDS
    wrong = runs(eager, lambda x, y: (x.set_(off(y) + 1), None)[1], inputs)
    assert [each.place for each in judge(ALL, *wrong).violations] == ["input 0"]


def everything(x: torch.Tensor) -> torch.Tensor:
    return x.as_strided((5,), (1,), 0)


SAME_AROUND = {
    "a rounding": (lambda x: everything(x).cos_(), lambda x: everything(x).cos_().mul_(1 + 1e-7)),
    "a zero of the other sign out of a clamp": (
        lambda x: everything(x).mul_(0.0).clamp_(min=0),
        lambda x: everything(x).mul_(-0.0),
    ),
    "another NaN": (lambda x: everything(x).mul_(NAN), lambda x: everything(x).fill_(-NAN)),
}


@pytest.mark.parametrize("name", SAME_AROUND)
def test_values_outside_the_inputs_are_compared_as_inside(name: str) -> None:
    eager, target = SAME_AROUND[name]
    assert (
        judge(ALL, *runs(lambda x: (eager(x), None)[1], lambda x: (target(x), None)[1], [around()]))
        == HOLDS
    )
    wrong = runs(
        lambda x: (eager(x), None)[1], lambda x: (target(x), write_at(x, 2), None)[2], [around()]
    )
    assert [each.kind for each in judge(ALL, *wrong).violations] == [
        "bytes outside the inputs change"
    ]


def test_a_zero_of_the_other_sign_outside_the_inputs_is_seen() -> None:
    eager = lambda x: (everything(x).mul_(0.0), None)[1]  # noqa: E731
    target = lambda x: (everything(x).mul_(-0.0), None)[1]  # noqa: E731
    (violation,) = judge(ALL, *runs(eager, target, [around()])).violations
    assert violation.kind == OTHER_ZERO  # it is wrong inside as well


@pytest.mark.parametrize("nbytes", [0, 8])
def test_memory_that_is_given_back(nbytes: int) -> None:
    give_back = lambda x: (x.untyped_storage().resize_(nbytes), None)[1]  # noqa: E731
    assert judge(ALL, *runs(give_back, give_back, [vector()])) == HOLDS
    assert judge(ALL, *runs(give_back, lambda x: None, [vector()])).verdict is Verdict.VIOLATED


def test_inputs_that_are_not_promised_are_compared() -> None:
    contract = waiving(Promise.INPUTS)
    assert (
        judge(contract, *runs(lambda x: x.add_(1), lambda x: x, [vector()])).verdict
        is Verdict.DOCUMENTED
    )
