"""Oracle *objects*: outputs that are one object, or are an input itself."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.checks.check import check
from aliasproof.oracles.contract import Contract, Promise, Waiver
from aliasproof.oracles.objects import judge
from aliasproof.oracles.verdict import HOLDS, Verdict
from tests.oracles.scenes import ALL, runs, waived

X = torch.arange(6.0).view(2, 3)


def of_one(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made, made


def of_two(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made, made.view(2, 3)


# The functions of eager and of the target, the place of the difference, and the promise.
WRONG = {
    "output is no longer the input itself": (
        lambda x: x.add_(1),
        lambda x: x.add_(1).view(2, 3),
        "output 0, input 0",
        Promise.IDENTITY,
    ),
    "output became an input": (
        lambda x: x.view(2, 3),
        lambda x: x,
        "output 0, input 0",
        Promise.IDENTITY,
    ),
    "two outputs became one object": (of_two, of_one, "output 0, output 1", Promise.OBJECTS),
    "two outputs are no longer one object": (
        of_one,
        of_two,
        "output 0, output 1",
        Promise.KEEPS_OBJECTS,
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_other_objects_are_seen(kind: str) -> None:
    eager, target, place, promise = WRONG[kind]
    both = runs(eager, target, [X])
    (violation,) = judge(ALL, *both).violations
    assert (violation.kind, violation.place) == (kind, place)
    assert waived(judge, promise, both) == (violation,)


def test_an_output_that_is_the_wrong_input_is_seen() -> None:
    base = torch.arange(4.0)
    report = judge(ALL, *runs(lambda x, y: x, lambda x, y: y, [base, base.view(2, 2)]))
    assert [each.kind for each in report.violations] == ["output is no longer the input itself"]


def test_identity_is_judged_where_the_waiver_does_not_apply() -> None:
    contract = Contract(
        waivers=(
            Waiver(Promise.IDENTITY, "for this test", unless=lambda trace: len(trace.inputs) == 1),
        )
    )
    lost = judge(contract, *runs(lambda x: x, lambda x: x.view(2, 3), [X]))
    assert [each.kind for each in lost.violations] == ["output is no longer the input itself"]
    waived = judge(contract, *runs(lambda x, y: x, lambda x, y: x.view(2, 3), [X, X.clone()]))
    assert (waived.violations, waived.differences) == ((), lost.violations)


def test_each_output_is_compared_with_the_first_that_it_is() -> None:
    def three(x: Tensor) -> list[Tensor]:
        made = x * 2
        return [x + 1, made, made, made]

    found = judge(ALL, *runs(lambda x: [x + 1, *[x * 2 for _ in range(3)]], three, [X]))
    assert [violation.place for violation in found.violations] == [
        "output 1, output 2",
        "output 1, output 3",
    ]


def test_one_object_that_becomes_two_twice_did_not_become_one() -> None:
    def two(x: Tensor) -> list[Tensor]:
        made, other = x * 2, x * 2
        return [made, made, other, other]

    found = judge(ALL, *runs(lambda x: [made := x * 2, made, made, made], two, [X]))
    assert {each.kind for each in found.violations} == {"two outputs are no longer one object"}


# Values that eager returns as one object, or as two; compilers must do the same.
RIGHT: dict[str, Callable[..., object]] = {
    "an input twice": lambda x: (x, x),
    "a result twice": of_one,
    "what is contiguous already": lambda x: (made := x * 2, made.contiguous()),
    "what has the dtype already": lambda x: (made := x * 2, made.to(torch.float32), made.float()),
    "what a write returns": lambda x: (made := x * 2, made.add_(1), x.mul_(2)),
    "a view of an input twice": lambda x: (made := x.t(), made),
    "a view of another size": lambda x: (made := x * 2, made.view(6), made.t()),
    "numbers": lambda x: (1, 1, made := x * 2, None, None, made),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_same_twice_holds(name: str) -> None:
    assert judge(ALL, *runs(RIGHT[name], RIGHT[name], [X])) == HOLDS


@pytest.mark.parametrize("name", RIGHT)
def test_no_target_is_blamed_for_what_eager_does(name: str) -> None:
    targets = ["functionalize", "fx-reinplace", "aot", "aot-eager", "inductor-fx", "reference"]
    outcome = check(RIGHT[name], X, targets)
    for result in outcome.results.values():
        assert not result.reports["objects"].violations


def test_outputs_that_do_not_match_leave_it_unknown() -> None:
    assert judge(ALL, *runs(of_one, lambda x: x, [X])).verdict is Verdict.UNKNOWN


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13")
def test_inductor_returns_one_object_twice() -> None:
    (result,) = check(of_two, X, ["inductor-fx"]).results.values()
    assert [violation.oracle for violation in result.violations] == ["objects"]
    assert result.wrong_part == "joint_graph: remove_noop_ops"
    first, second = torch.compile(of_two)(X)
    second.t_()
    assert first.shape == (3, 2)
