"""Oracle *aliasing*: new aliases, and lost ones."""

import pytest
import torch
from torch import Tensor

from aliasproof.ir.errors import InternalError
from aliasproof.oracles import aliasing
from aliasproof.oracles.aliasing import judge
from aliasproof.oracles.contract import Promise
from aliasproof.oracles.smt import Disjoint, Unknown
from aliasproof.oracles.verdict import HOLDS, Verdict
from tests.oracles.scenes import ALL, Function, runs, waived, waiving

NEW_ONLY = waiving(Promise.KEEPS_ALIASES)
X = torch.arange(6.0).view(2, 3)


def viewed_bytes(x: Tensor, first: int, last: int) -> Tensor:
    return x.view(-1).view(torch.uint8)[first : last + 1]


# The values that the new alias connects; the function in eager, and that of the target.
NEW = {
    "input and output": ("input", lambda x: x + 0, lambda x: x.view(6)),
    "input and a part": ("input", lambda x: x[0, 1:2] + 0, lambda x: x[0, 1:2]),
    "input and a transpose": ("input", lambda x: x.t().clone(), lambda x: x.t()),
    "outputs": ("output", lambda x: (x + 1, x + 1), lambda x: (y := x + 1, y)),
    "parts of outputs": (
        "output",
        lambda x: (x[0] + 0, x[:, 0] + 0),
        lambda x: ((y := x + 0)[0], y[:, 0]),
    ),
    "one byte": (
        "output",
        lambda x: (viewed_bytes(y := x + 0, 0, 3), viewed_bytes(y, 4, 7)),
        lambda x: (viewed_bytes(y := x + 0, 0, 4), viewed_bytes(y, 4, 7)),
    ),
    "interleaved in eager": (
        "output",
        lambda x: ((y := x.view(6) + 0)[::2], y[1::2]),
        lambda x: ((y := x.view(6) + 0)[::2], y[1:4]),
    ),
}


@pytest.mark.parametrize("name", NEW)
def test_a_new_alias_is_seen(name: str) -> None:
    role, eager, target = NEW[name]
    report = judge(NEW_ONLY, *runs(eager, target, [X]))
    assert report.verdict is Verdict.VIOLATED
    assert {(each.oracle, each.kind) for each in report.violations} == {
        ("aliasing", f"new alias between {role} and output")
    }


@pytest.mark.parametrize(
    "functions",
    [
        pytest.param([lambda x: x], id="the input itself"),
        pytest.param([lambda x: x[1:]], id="a view of the input"),
        pytest.param([lambda x: x + 0], id="something new"),
        pytest.param([lambda x: (y := x + 0, y.t())], id="outputs that alias in eager as well"),
        pytest.param([lambda x: ((y := x + 0)[0], y[1])], id="outputs side by side"),
        pytest.param([lambda x: ((y := x + 0)[:, 0], y[:, 1])], id="interleaved outputs"),
        pytest.param([lambda x: (x[:0], x[:0])], id="no elements"),
        pytest.param([lambda x: (1, None, x + 0)], id="not only tensors"),
        pytest.param(
            [lambda x: (x[0] + 0, x[1] + 0), lambda x: ((y := x + 0)[0], y[1])],
            id="one storage without a common byte",
        ),
        pytest.param(
            [
                lambda x: (x[0] + 0, x[0] + 0),
                lambda x: (viewed_bytes(y := x + 0, 0, 4), viewed_bytes(y, 5, 8)),
            ],
            id="touching bytes",
        ),
    ],
)
def test_what_is_no_new_alias_is_not_blamed(functions: list[Function]) -> None:
    """The last function is that of the target."""
    assert judge(ALL, *runs(functions[0], functions[-1], [X])) == HOLDS


def test_how_inputs_overlap_each_other_is_the_callers_doing() -> None:
    assert judge(ALL, *runs(lambda x, y: x + y, lambda x, y: y + x, [X[:, 1:], X[:, :2]])) == HOLDS


def test_the_witness_can_be_checked_by_hand() -> None:
    # The output is the last column of the input: elements [0, 2] and [1, 2] of a 2 x 3 matrix of
    # 4-byte elements.
    (violation,) = judge(NEW_ONLY, *runs(lambda x: x[:, 2] + 0, lambda x: x[:, 2], [X])).violations
    assert violation.place == "input 0, output 0"
    row = 1 if violation.evidence["index in the second"] == [1] else 0
    assert violation.evidence["index in the second"] == [row]
    assert violation.evidence["index in the first"] == [row, 2]
    first_byte = 4 * (3 * row + 2)
    assert violation.evidence["shared byte, from the start of the first"] in range(
        first_byte, first_byte + 4
    )


def test_the_witness_of_a_single_shared_byte() -> None:
    _, eager, target = NEW["one byte"]
    (violation,) = judge(NEW_ONLY, *runs(eager, target, [X])).violations
    assert violation.place == "output 0, output 1"
    assert dict(violation.evidence) == {
        "index in the first": [4],
        "index in the second": [0],
        "shared byte, from the start of the first": 4,
    }


def test_a_new_alias_that_is_not_promised_away_is_documented() -> None:
    both = runs(lambda x: x + 0, lambda x: x.view(6), [X])
    assert waived(judge, Promise.NO_NEW_ALIAS, both) == judge(ALL, *both).violations


def test_an_output_that_newly_overlaps_itself_is_seen() -> None:
    eager, target = (lambda x: x[:1].expand(2, 3).clone()), (lambda x: x[:1].clone().expand(2, 3))
    both = runs(eager, target, [X])
    (violation,) = judge(ALL, *both).violations
    assert (violation.kind, violation.place) == ("output overlaps itself", "output 0")
    assert judge(ALL, *runs(target, target, [X])) == HOLDS
    assert waived(judge, Promise.NO_NEW_ALIAS, both) == (violation,)


def test_inputs_that_come_to_share_are_seen() -> None:
    both = runs(lambda x, y: None, lambda x, y: (y.set_(x), None)[1], [X, X.clone()])
    assert [each.kind for each in judge(ALL, *both).violations] == [
        "new alias between input and input"
    ]


# --- aliases lost ---------------------------------------------------------------------------------

LOST = {
    "input and output": ("input", lambda x: x[1:], lambda x: x[1:].clone()),
    "outputs": ("output", lambda x: (y := x + 0, y.t()), lambda x: (y := x + 0, y.t().clone())),
    "the other half": (
        "output",
        lambda x: ((y := x + 0), y[1]),
        lambda x: ((y := torch.cat([x, x]))[:2], y[3]),
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_a_lost_alias_is_seen_where_it_is_promised(name: str) -> None:
    role, eager, target = LOST[name]
    both = runs(eager, target, [X])
    report = judge(ALL, *both)
    assert [each.kind for each in report.violations] == [f"lost alias between {role} and output"]
    assert waived(judge, Promise.KEEPS_ALIASES, both) == report.violations


# --- undecided ------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [lambda x: x + 1, lambda x: 1])
def test_outputs_that_do_not_match_leave_it_unknown(more: Function) -> None:
    report = judge(ALL, *runs(lambda x: (x, more(x)), lambda x: (x,), [X]))
    assert report.verdict is Verdict.UNKNOWN
    assert "cannot be matched" in report.reason


def test_an_alias_that_z3_cannot_confirm_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliasing, "decide", lambda *_: Unknown("canceled"))
    report = judge(NEW_ONLY, *runs(lambda x: x + 0, lambda x: x.view(6), [X]))
    assert report.verdict is Verdict.UNKNOWN
    assert "canceled" in report.reason


def test_what_z3_cannot_confirm_hides_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliasing, "decide", lambda *_: Unknown("canceled"))
    report = judge(ALL, *runs(lambda x: (x + 0, x[1:]), lambda x: (x.view(6), x[1:] + 0), [X]))
    assert "lost alias between input and output" in {each.kind for each in report.violations}


def test_deciders_that_disagree_are_our_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliasing, "decide", lambda *_: Disjoint())
    with pytest.raises(InternalError, match="disagree"):
        judge(NEW_ONLY, *runs(lambda x: x + 0, lambda x: x.view(6), [X]))


def test_only_new_aliases_are_put_to_z3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliasing, "decide", lambda *_: pytest.fail("asked"))
    assert judge(ALL, *runs(lambda x: x[1:], lambda x: x[1:], [X])) == HOLDS
