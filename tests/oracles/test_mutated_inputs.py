"""Oracle *inputs*: the final contents of inputs, and of the bytes around them."""

from typing import Any

import pytest
import torch

from aliasproof.oracles.contract import Promise
from aliasproof.oracles.inputs import judge
from aliasproof.oracles.values import OTHER_ZERO
from aliasproof.oracles.verdict import HOLDS, Verdict
from tests.oracles.scenes import ALL, runs, waiving

NAN = float("nan")
VECTOR = torch.arange(1.0, 5)
AROUND = torch.arange(1.0, 6)[1:4:2]  # elements 1 and 3 of a storage of five
WRONG, OUTSIDE = "input ends wrong", "bytes outside the inputs change"


def write_at(tensor: torch.Tensor, position: int) -> torch.Tensor:
    return tensor.as_strided((1,), (1,), position).fill_(99)


# The functions of eager and of the target, and their inputs; then kind, places and evidence.
DIFFERENT: dict[str, tuple[Any, ...]] = {
    "an input that stays stale": (
        (lambda x: x.add_(1), lambda x: x + 1, [VECTOR]),
        (WRONG, ["input 0"], {"eager": "2.0", "target": "1.0"}),
    ),
    "an input that should have stayed": (
        (lambda x: x + 1, lambda x: x.add_(1), [VECTOR]),
        (WRONG, ["input 0"], {}),
    ),
    "one element of the second input": (
        (lambda x, y: None, lambda x, y: y[3:].neg_(), [VECTOR, VECTOR.clone()]),
        (WRONG, ["input 1"], {"first wrong index": [3]}),
    ),
    "an update that is lost between inputs that share": (
        (
            lambda x, y: x.add_(1),
            lambda x, y: (y.add_(1), x[:1].sub_(1)),
            [VECTOR[:2], VECTOR[1:3]],
        ),
        (WRONG, ["input 0", "input 1"], {}),
    ),
    "a byte outside the second input": (
        (lambda x, y: None, lambda x, y: write_at(y, 2), [VECTOR, AROUND]),
        (OUTSIDE, ["storage of input 1"], {}),
    ),
    "a byte that another input shows": (
        (lambda x, y: None, lambda x, y: write_at(x, 3), [VECTOR[:2], VECTOR[2:]]),
        (WRONG, ["input 1"], {}),
    ),
    "the storage of an empty input": (
        (lambda x: None, lambda x: write_at(x, 1), [VECTOR[:0]]),
        (OUTSIDE, ["storage of input 0"], {}),
    ),
    "an element of a view of another item size": (
        (lambda x: None, lambda x: x[2:].fill_(7), [VECTOR.view(torch.uint8)[:3]]),
        (WRONG, ["input 0"], {"first wrong index": [2]}),
    ),
    "a storage of another size": (
        (lambda x: None, lambda x: x.untyped_storage().resize_(32), [VECTOR]),
        (
            "storage has another size",
            ["storage of input 0"],
            {"eager": "16 bytes", "target": "32 bytes"},
        ),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_is_seen(name: str) -> None:
    functions, (kind, places, evidence) = DIFFERENT[name]
    found = judge(ALL, *runs(*functions)).violations
    assert [(each.oracle, each.kind, each.place) for each in found] == [
        ("inputs", kind, place) for place in places
    ]
    assert evidence.items() <= found[0].evidence.items()


@pytest.mark.parametrize("position", [0, 2, 4])
def test_a_byte_outside_the_view_is_compared(position: int) -> None:
    def adds(x: torch.Tensor) -> None:
        x.add_(1)

    def adds_and_writes(x: torch.Tensor) -> None:
        write_at(x.add_(1), position)

    for both in (runs(adds, adds_and_writes, [AROUND]), runs(adds_and_writes, adds, [AROUND])):
        (violation,) = judge(ALL, *both).violations
        assert (violation.kind, violation.place) == (OUTSIDE, "storage of input 0")
        assert violation.evidence["first wrong byte"] in range(4 * position, 4 * position + 4)
    assert judge(ALL, *runs(adds_and_writes, adds_and_writes, [AROUND])) == HOLDS


def test_values_are_compared_even_if_the_input_ends_with_another_shape() -> None:
    """Some targets do not promise the shape of an input, but they promise its values."""
    contract = waiving(Promise.INPUT_METADATA)
    report = judge(contract, *runs(lambda x: x.unsqueeze_(0).add_(1), lambda x: None, [VECTOR]))
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
    assert judge(ALL, *runs(function, function, [VECTOR])) == HOLDS
    assert judge(ALL, *runs(function, function, [AROUND])) == HOLDS


def test_a_rounding_is_forgiven_only_where_an_op_leaves_it_open() -> None:
    def off(x: torch.Tensor) -> torch.Tensor:
        return x.copy_(torch.nextafter(x, torch.full_like(x, 9.0)))

    assert judge(ALL, *runs(lambda x: x.cos_(), lambda x: off(x.cos_()), [VECTOR])) == HOLDS
    exact = judge(ALL, *runs(lambda x: x.neg_(), lambda x: off(x.neg_()), [VECTOR]))
    assert exact.verdict is Verdict.VIOLATED


def test_a_rounding_in_the_storage_that_an_input_is_given_is_forgiven() -> None:
    def off(y: torch.Tensor) -> torch.Tensor:
        return torch.nextafter(y.cos(), torch.full_like(y, 9.0))

    inputs = [VECTOR, VECTOR.clone()]
    eager = lambda x, y: x.set_(y.cos())  # noqa: E731
    assert judge(ALL, *runs(eager, lambda x, y: x.set_(off(y)), inputs)) == HOLDS
    wrong = runs(eager, lambda x, y: x.set_(off(y) + 1), inputs)
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
    assert judge(ALL, *runs(eager, target, [AROUND])) == HOLDS
    wrong = runs(eager, lambda x: (target(x), write_at(x, 2)), [AROUND])
    assert [each.kind for each in judge(ALL, *wrong).violations] == [OUTSIDE]


def test_a_zero_of_the_other_sign_outside_the_inputs_is_seen() -> None:
    functions = (lambda x: everything(x).mul_(0.0)), (lambda x: everything(x).mul_(-0.0))
    (violation,) = judge(ALL, *runs(*functions, [AROUND])).violations
    assert violation.kind == OTHER_ZERO  # it is wrong inside as well


@pytest.mark.parametrize("nbytes", [0, 8])
def test_memory_that_is_given_back(nbytes: int) -> None:
    give_back = lambda x: (x.untyped_storage().resize_(nbytes), None)[1]  # noqa: E731
    assert judge(ALL, *runs(give_back, give_back, [VECTOR])) == HOLDS
    assert judge(ALL, *runs(give_back, lambda x: None, [VECTOR])).verdict is Verdict.VIOLATED


def test_inputs_that_are_not_promised_are_compared() -> None:
    report = judge(waiving(Promise.INPUTS), *runs(lambda x: x.add_(1), lambda x: x, [VECTOR]))
    assert report.verdict is Verdict.DOCUMENTED
