"""Contracts: promises, waivers, and the runs for which they hold."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aliasproof.eager.definedness import Watch
from aliasproof.eager.trace import Trace
from aliasproof.oracles.contract import (
    NATIVE,
    WIDER,
    Contract,
    Precondition,
    Promise,
    Refusal,
    Waiver,
    as_strided_stays_inside,
    is_merged,
    no_overlapping_as_strided,
    overlapping_writes_come_from_expand,
    raiser,
    writes_inputs_of_two_dtypes,
    writes_overlapping_input,
    writes_through_as_strided,
    written_inputs_disjoint,
)

NOTHING = Trace()


@pytest.mark.parametrize("promise", Promise)
def test_everything_is_promised_that_is_not_waived(promise: Promise) -> None:
    assert Contract().promises(promise, NOTHING)
    assert not Contract(waivers=(Waiver(promise, "a reason"),)).promises(promise, NOTHING)
    waive_it = (promise, WIDER.get(promise))
    others = Contract(
        waivers=tuple(Waiver(each, "a reason") for each in Promise if each not in waive_it)
    )
    assert others.promises(promise, NOTHING)


def test_a_waiver_may_apply_to_some_runs_only() -> None:
    contract = Contract(
        waivers=(Waiver(Promise.VALUES, "a reason", unless=no_overlapping_as_strided),)
    )
    assert contract.promises(Promise.VALUES, Trace(overlapping_as_strided=False))
    assert not contract.promises(Promise.VALUES, Trace(overlapping_as_strided=True))


def test_a_waiver_may_apply_to_some_inputs_only() -> None:
    waiver = Waiver(Promise.IDENTITY, "a reason", only=lambda trace, index: index == 1)
    contract = Contract(waivers=(waiver,))
    assert [contract.waiver(Promise.IDENTITY, NOTHING, index) for index in (0, 1)] == [None, waiver]
    assert contract.promises(Promise.IDENTITY, NOTHING), "no input is concerned"


def test_two_waivers_of_one_promise_both_apply() -> None:
    one, other = Waiver(Promise.VALUES, "a", unless=lambda trace: True), Waiver(Promise.VALUES, "b")
    assert not Contract(waivers=(one, other)).promises(Promise.VALUES, NOTHING)
    assert Contract(waivers=(one, one)).promises(Promise.VALUES, NOTHING)


def test_the_first_unmet_premise_is_named() -> None:
    met, unmet = (
        Precondition("a", "", lambda trace: True),
        Precondition("b", "", no_overlapping_as_strided),
    )
    contract = Contract(preconditions=(met, unmet))
    assert contract.unmet(NOTHING) is None
    assert contract.unmet(Trace(overlapping_as_strided=True)) is unmet


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        if cause is None:
            raise error
        raise error from cause
    except type(error):
        return error


def test_a_refusal_is_found_by_type_and_message() -> None:
    always = lambda trace: True  # noqa: E731
    refusal = Refusal("overlap", "overlap", "a reason", always, ("ValueError",), (__name__,))
    contract = Contract(refusals=(Refusal("", "nothing like it", "", always), refusal))
    assert contract.refusal(raised(ValueError("internal overlap")), NOTHING) is refusal
    assert contract.refusal(raised(RuntimeError("internal overlap")), NOTHING) is None
    assert contract.refusal(raised(ValueError("shape")), NOTHING) is None


def test_a_refusal_may_be_right_for_some_runs_only() -> None:
    refusal = Refusal("", "no", "", lambda trace: trace.outside, raised_by=(__name__,))
    contract, error = Contract(refusals=(refusal,)), raised(RuntimeError("no"))
    assert contract.refusal(error, Trace(outside=True)) is not None
    assert contract.refusal(error, Trace(outside=False)) is None


def test_who_raises_an_error() -> None:
    assert raiser(RuntimeError("never raised")) is None
    assert raiser(raised(RuntimeError("no"))) == __name__
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2) + torch.ones(3)
    assert raiser(caught.value) == NATIVE


def test_a_refusal_is_found_below_the_error_that_was_made_of_it() -> None:
    refusal = Refusal("", "no", "", lambda trace: True, ("KeyError",), (__name__,))
    inner = raised(KeyError("no"))
    named = raised(RuntimeError("a backend raised this"))
    named.inner_exception = inner  # type: ignore[attr-defined]
    assert refusal.covers(named, NOTHING)
    assert refusal.covers(raised(RuntimeError("made of it"), inner), NOTHING)
    try:
        raise inner
    except KeyError:
        meanwhile, instead = raised(RuntimeError("another one")), raised(RuntimeError("no"))
        instead.__suppress_context__ = True  # by `from None`
    assert meanwhile.__context__ is instead.__context__ is inner
    assert refusal.covers(instead, NOTHING)
    assert not refusal.covers(meanwhile, NOTHING)
    assert not refusal.covers(raised(RuntimeError("KeyError: no")), NOTHING)


def test_an_error_on_overlap_that_a_function_catches_is_documented() -> None:
    """The function then continues differently, and the target need not raise that error."""
    waived = Contract(waivers=(Waiver(Promise.SAME_OVERLAP_ERROR, "a reason"),))
    for contract, trace, outside in [
        (waived, Trace(overlap_error=True), True),
        (waived, NOTHING, False),
        (Contract(), Trace(overlap_error=True), False),
    ]:
        assert (contract.outside(trace) is not None) is outside


def traced(function, *inputs: torch.Tensor) -> Trace:
    watch = Watch(inputs)
    with watch:
        function(*inputs)
    return watch.trace


BASE = torch.zeros(6)
BYTES = BASE.view(torch.uint8)
OVERLAPPING = BASE[:1].expand(3), BASE
# By condition and name: whether it holds for a run of the function on these inputs.
CONDITIONS: dict[Callable[[Trace], bool], dict[str, tuple[Any, ...]]] = {
    written_inputs_disjoint: {
        "side by side": (True, lambda x, y: x.add_(y), BASE[:3], BASE[3:]),
        "overlapping, the first written": (False, lambda x, y: x.add_(1), BASE[:4], BASE[3:]),
        "overlapping, the second written": (False, lambda x, y: y.add_(1), BASE[:4], BASE[3:]),
        "overlapping, written elsewhere": (False, lambda x, y: x[:1].add_(1), BASE[:4], BASE[3:]),
        "overlapping, only read": (True, lambda x, y: x[:3] + y, BASE[:4], BASE[3:]),
        "interleaved": (True, lambda x, y: x.add_(y), BASE[::2], BASE[1::2]),
        "two storages": (True, lambda x, y: x.add_(y), BASE, BASE.clone()),
        "one byte": (False, lambda x, y: x.zero_(), BYTES[7:9], BASE[2:]),
        "no elements": (True, lambda x, y: y.add_(1), BASE[:0], BASE),
    },
    writes_overlapping_input: {
        "as it is": (True, lambda x, y: x.zero_(), *OVERLAPPING),
        "through a view": (True, lambda x, y: x[:1].zero_(), *OVERLAPPING),
        "through another input": (True, lambda x, y: y[:1].zero_(), *OVERLAPPING),
        "other bytes of its storage": (False, lambda x, y: y[1:].zero_(), *OVERLAPPING),
        "only read": (False, lambda x, y: x + 1, *OVERLAPPING),
    },
    writes_inputs_of_two_dtypes: {
        "one is written": (True, lambda x, y: x.zero_(), BASE, BYTES),
        "a byte of one": (True, lambda x, y: y[:1].zero_(), BASE, BYTES),
        "only read": (False, lambda x, y: x + y[:1], BASE, BYTES),
        "side by side": (False, lambda x, y: x.zero_(), BASE[:3], BYTES[12:]),
        "through a third": (True, lambda x, y, z: x.zero_(), BASE[:3], BYTES[16:], BASE[2:5]),
        "a third one": (False, lambda x, y, z: z.zero_(), BASE[:1], BYTES[:4], BASE[2:]),
        "of one dtype": (False, lambda x, y: x.zero_(), BASE[:2], BASE[1:]),
    },
    writes_through_as_strided: {
        "written": (True, lambda x: x.as_strided((2,), (1,)).zero_(), BASE),
        "through a view": (True, lambda x: x.as_strided((2,), (1,))[1:].zero_(), BASE),
        "a copy": (False, lambda x: x.as_strided((2,), (1,)).mul(2).zero_(), BASE),
        "beside it": (False, lambda x: (x.as_strided((2,), (1,)), x.zero_()), BASE),
        "without it": (False, lambda x: x[1:].zero_(), BASE),
    },
    as_strided_stays_inside: {
        "inside its argument": (True, lambda x: x.as_strided((2,), (1,), 1), BASE[1:4]),
        "before its argument": (False, lambda x: x.as_strided((2,), (1,), 0), BASE[1:4]),
    },
}


@pytest.mark.parametrize(
    ("condition", "name"),
    [(condition, name) for condition, rows in CONDITIONS.items() for name in rows],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_condition_on_a_run(condition: Callable[[Trace], bool], name: str) -> None:
    holds, function, *inputs = CONDITIONS[condition][name]
    assert condition(traced(function, *inputs)) == holds


@pytest.mark.parametrize(
    ("inputs", "function", "merged"),
    [
        pytest.param((BASE[:4], BASE[3:]), lambda x, y: x.add_(1), [True, True], id="overlapping"),
        pytest.param((BASE[:4], BASE[3:]), lambda x, y: x + y[:1], [False, False], id="only read"),
        pytest.param((BASE[:3], BASE[3:]), lambda x, y: x.add_(1), [False, False], id="touching"),
        pytest.param((BASE, BASE[2:2]), lambda x, y: x.add_(1), [False, False], id="no elements"),
        pytest.param(
            (BASE[:2], BASE, BASE[4:], torch.ones(2)),
            lambda x, y, z, w: (x.add_(1), w.add_(1)),
            [True, True, True, False],
            id="two storages",
        ),
    ],
)
def test_inputs_that_aot_merges(inputs, function, merged: list[bool]) -> None:
    trace = traced(function, *inputs)
    assert [is_merged(trace, index) for index in range(len(inputs))] == merged


@pytest.mark.parametrize(
    ("view", "overlapping", "from_expand"),
    [
        pytest.param(lambda x: x.expand(2, 6), True, True, id="expand"),
        pytest.param(lambda x: x.unfold(0, 2, 2), False, True, id="unfold, side by side"),
        pytest.param(lambda x: x.unfold(0, 2, 1), True, False, id="unfold"),
        pytest.param(lambda x: x.as_strided((2, 3), (1, 1)), True, False, id="as_strided"),
        pytest.param(lambda x: x.expand(2, 6).unfold(1, 2, 1), True, False, id="expand and unfold"),
        pytest.param(lambda x: x, False, True, id="none"),
    ],
)
def test_writes_through_regions_that_overlap_themselves(view, overlapping, from_expand):
    trace = traced(lambda x: view(x).zero_(), BASE.clone())
    assert bool(trace.overlapping_writes) == overlapping
    assert overlapping_writes_come_from_expand(trace) == from_expand
    assert not writes_overlapping_input(trace)
