"""Oracle *metadata*: sizes, dtypes, strides and offsets, as far as promised."""

import pytest
import torch

from aliasproof.oracles.contract import Contract, Promise, Waiver
from aliasproof.oracles.metadata import judge
from aliasproof.oracles.verdict import HOLDS, Verdict
from tests.oracles.scenes import ALL, runs, waiving

X = torch.arange(6.0).view(2, 3)

SIZE_AND_DTYPE = Promise.SIZE_AND_DTYPE
WRONG = {
    "dtype": (lambda x: x + 1, lambda x: (x + 1).double(), "wrong dtype", SIZE_AND_DTYPE),
    "size": (lambda x: x + 1, lambda x: (x + 1)[:, :2], "wrong size", SIZE_AND_DTYPE),
    "rank": (lambda x: x + 1, lambda x: (x + 1)[None], "wrong size", SIZE_AND_DTYPE),
    "an empty size": (lambda x: x[:0], lambda x: x[:, :0], "wrong size", SIZE_AND_DTYPE),
    "stride": (
        lambda x: x + 1,
        lambda x: (x + 1).t().contiguous().t(),
        "wrong stride",
        Promise.STRIDE,
    ),
    "expanded": (
        lambda x: x[:1].expand(2, 3),
        lambda x: x[:1].expand(2, 3).clone(),
        "wrong stride",
        Promise.STRIDE,
    ),
    "offset": (lambda x: x[1:], lambda x: x[1:] + 0, "wrong storage offset", Promise.OFFSET),
    "device": (lambda x: x + 1, lambda x: (x + 1).to("meta"), "wrong device", SIZE_AND_DTYPE),
    "input size": (lambda x: x, lambda x: x.unsqueeze_(0), "wrong size", SIZE_AND_DTYPE),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_metadata_of_an_output_is_seen(name: str) -> None:
    eager, target, kind, promise = WRONG[name]
    violation = judge(ALL, *runs(eager, target, [X])).violations[0]
    assert (violation.oracle, violation.kind, violation.place) == ("metadata", kind, "output 0")
    waivers = (Waiver(promise, "for this test"), Waiver(Promise.INPUT_METADATA, "for this test"))
    report = judge(Contract(waivers=waivers), *runs(eager, target, [X]))
    assert report.violations == ()
    assert report.documented[0].difference == violation


DENSE = (1, 2)  # the strides of a copy of `part` that keeps their order


def part(x: torch.Tensor) -> torch.Tensor:
    """A view of an intermediate result with strides (1, 3)."""
    return (x + 1)[:, :2].t()


@pytest.mark.parametrize(
    ("eager", "strides", "verdict"),
    [
        pytest.param(part, DENSE, Verdict.DOCUMENTED, id="a part, in order"),
        pytest.param(part, DENSE[::-1], Verdict.VIOLATED, id="a part, in another order"),
        pytest.param(lambda x: x[:, :2].t(), DENSE, Verdict.VIOLATED, id="a part of an input"),
        pytest.param(
            lambda x: torch.empty_strided((2, 2), (1, 3)).fill_(1),
            DENSE,
            Verdict.VIOLATED,
            id="no view",
        ),
        pytest.param(
            lambda x: (x + 1)[:1, :1].expand(2, 2), DENSE, Verdict.VIOLATED, id="expanded"
        ),
    ],
)
def test_parts_of_intermediate_results_may_lose_their_strides(eager, strides, verdict) -> None:
    def target(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided((2, 2), strides).copy_(eager(x))

    assert judge(waiving(Promise.STRIDE_OF_PART), *runs(eager, target, [X])).verdict is verdict
    assert judge(ALL, *runs(eager, target, [X])).verdict is Verdict.VIOLATED
    assert judge(waiving(Promise.STRIDE), *runs(eager, target, [X])).verdict is Verdict.DOCUMENTED


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(lambda x: x.t_(), id="transposed"),
        pytest.param(lambda x: x.unsqueeze_(0), id="another rank"),
        pytest.param(lambda x: x.as_strided_((2, 3), (1, 2)), id="another stride"),
    ],
)
def test_an_input_that_ends_with_another_shape_is_seen(target) -> None:
    both = runs(lambda x: None, lambda x: (target(x), None)[1], [X])
    (violation,) = judge(ALL, *both).violations
    assert (violation.kind, violation.place) == ("input ends with another shape", "input 0")
    assert violation.evidence["eager"] == [[2, 3], [3, 1]]
    assert judge(waiving(Promise.INPUT_METADATA), *both).verdict is Verdict.DOCUMENTED


def test_an_input_that_ends_with_another_dtype_is_seen() -> None:
    def widen(x: torch.Tensor) -> None:
        x.data = x.data.double()

    both = runs(widen, lambda x: None, [X])
    assert [(each.kind, each.place) for each in judge(ALL, *both).violations] == [
        ("input ends with another dtype", "input 0")
    ]
    assert judge(ALL, *runs(widen, widen, [X])) == HOLDS
    assert judge(waiving(Promise.INPUT_METADATA), *both).verdict is Verdict.DOCUMENTED


def test_every_output_is_looked_at_and_named_once() -> None:
    eager = lambda x: (x + 1, x[1:], x > 0)  # noqa: E731
    target = lambda x: (x + 1, x[1:].double(), (x > 0).int())  # noqa: E731
    report = judge(ALL, *runs(eager, target, [X]))
    assert [(each.place, each.kind) for each in report.violations] == [
        ("output 1", "wrong dtype"),
        ("output 2", "wrong dtype"),
    ]


def test_the_evidence_shows_both() -> None:
    (violation,) = judge(ALL, *runs(lambda x: x + 1, lambda x: (x + 1)[:1], [X])).violations
    assert violation.evidence == {"eager": "[2, 3]", "target": "[1, 3]"}


RIGHT = {
    "equal": (lambda x: x[:, 1:], lambda x: x[:, 1:]),
    "a stride along one element": (
        lambda x: x[:1] + 0,
        lambda x: (x + 0)[:1].as_strided((1, 3), (77, 1)),
    ),
    "strides of nothing": (lambda x: x[:0], lambda x: torch.empty(0, 3).as_strided((0, 3), (5, 7))),
    "an offset that nobody sees": (lambda x: (x + 1)[1], lambda x: (x + 1)[0]),
    "the offset of nothing": (lambda x: x[2:], lambda x: x[:0]),
    "other values": (lambda x: x + 1, lambda x: x + 2),
    "Python numbers": (lambda x: 1, lambda x: 2),
    "the same change of an input": (lambda x: x.t_(), lambda x: x.t_()),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_metadata_is_not_blamed(name: str) -> None:
    assert judge(ALL, *runs(*RIGHT[name], [X])) == HOLDS
