"""Rounding is right, and a small error is wrong: a control in float64 distinguishes them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from aliasproof.checks.check import check
from aliasproof.judge import rounding_control
from aliasproof.judge.trial import Case, Trial, run_trial
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import Judgement
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import ON_VALUES, Report, Verdict, Violation
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Build, Function, Target
from tests.aliasproof.functions_as_called import compile_with
from tests.short_programs import program_of, view


def trial(
    function: Function, other: Function, *inputs: Tensor, contract: Contract | None = None
) -> Trial:
    """A trial of a target that calls another function."""

    def build(given: Function, sample: Sequence[Tensor]) -> Build:
        return Build(other, [])

    target = Target("planted", "for this test", contract or Contract(), build, "")
    return run_trial(Case.of_function(function, list(inputs)), target)


def one_after_the_other(x: Tensor) -> Tensor:
    """A sum that rounds after each element, which the sum of torch does not."""
    total = x.new_zeros(())
    for number in x:
        total = total + number
    return total


def variance_of_squares(x: Tensor) -> Tensor:
    return (x * x).mean() - x.mean() ** 2


NUMBERS = torch.linspace(-1, 1, 999) + 0.1
BALANCED = torch.linspace(-1000, 1000.5, 999)
LARGE = torch.linspace(0, 1, 50) + 300
HUGE = torch.tensor([1e30, 2e30, 3e30])
ROUNDED: dict[str, tuple[Function, Function, Tensor]] = {
    "another order": (lambda x: x.sum(), one_after_the_other, BALANCED),
    "cancellation": (lambda x: x.var(correction=0), variance_of_squares, LARGE),
    "overflow": (lambda x: x.log(), lambda x: (x * x).log() / 2, HUGE),
}
# The numbers cancel, up to their last bits, so that a quotient by their sum is anything.
TENTHS = torch.tensor([0.1, 0.2, -0.3] * 5, dtype=torch.float64)
ROUNDED_IN_FLOAT64: dict[str, tuple[Function, Function, Tensor]] = {
    "quotient by what cancels": (
        lambda x: x / x.sum(),
        lambda x: x / one_after_the_other(x),
        TENTHS,
    ),
    "quotient by a mean": (
        lambda x: x / F.batch_norm(x[:, None], None, None, training=True)[:, 0].sum(),
        lambda x: x / one_after_the_other((x - x.mean()) / x.std(correction=0)),
        TENTHS,
    ),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_what_rounds_is_right(name: str) -> None:
    function, other, x = ROUNDED[name]
    report = trial(function, other, x).judgement.reports["values"]
    assert report.verdict is Verdict.HOLDS
    assert report.reason == "output 0: rounding alone, since both sides agree in float64"


@pytest.mark.parametrize("name", ROUNDED_IN_FLOAT64)
def test_what_rounds_in_float64_is_right(name: str) -> None:
    function, other, x = ROUNDED_IN_FLOAT64[name]
    report = trial(function, other, x).judgement.reports["values"]
    assert report.verdict is Verdict.HOLDS
    assert "the last bits of operands" in (report.reason or "")


def wrong_in_float32(x: Tensor) -> Tensor:
    return x.sum() * (1.5 if x.dtype == torch.float32 else 1)


WRONG: dict[str, tuple[Function, Function, Tensor]] = {
    "by little": (lambda x: x.std(), lambda x: x.std() * (1 + 4e-6), BALANCED),
    "by one element of many": (lambda x: x.mean(), lambda x: x[1:].sum() / len(x), NUMBERS + 2),
    "in one dtype": (lambda x: x.sum(), wrong_in_float32, NUMBERS + 2),
    "infinite": (lambda x: x.exp().sum(), lambda x: x.exp().sum() / 0, NUMBERS),
    "by the last bit, where nothing rounds": (lambda x: x + 0, lambda x: x * (1 + 1e-7), NUMBERS),
    "in float64": (lambda x: x.sum(), lambda x: x.sum() * (1 + 1e-6), BALANCED.double()),
    "in float64, beside what cancels": (
        lambda x: x + x.sum(),
        lambda x: x + x.sum() + 1e-6,
        TENTHS,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_by_little_is_wrong(name: str) -> None:
    function, other, x = WRONG[name]
    (violation,) = trial(function, other, x).judgement.violations
    assert violation.kind == "wrong value"


def test_inputs_become_float64_with_their_layouts_and_sharing() -> None:
    base = torch.arange(12, dtype=torch.bfloat16)
    one, other, index = base.view(3, 4).t(), base[2:5], torch.tensor([1, 2])
    wide = rounding_control.widened([one, other, index])
    assert wide is not None
    assert [tensor.dtype for tensor in wide] == [torch.float64, torch.float64, torch.int64]
    for tensor, given in zip(wide, (one, other, index), strict=True):
        torch.testing.assert_close(tensor, given, check_dtype=False)
        assert tensor.stride() == given.stride()
    wide[1][0] = 99
    assert wide[0][2, 0] == 99


def test_two_dtypes_in_one_storage_have_no_float64() -> None:
    base = torch.arange(4.0)
    assert rounding_control.widened([base, base.view(torch.int32)]) is None
    assert rounding_control.widened([torch.arange(4)]) is None


def batch_norm(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return F.batch_norm(x, mean, variance, training=True)


PEOPLE: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "std": (lambda x: x.std(0), [torch.arange(1.0, 13).reshape(3, 4)]),
    "batch_norm": (
        batch_norm,
        [torch.linspace(-2, 3, 96).reshape(4, 3, 8), torch.zeros(3), torch.ones(3)],
    ),
}


@pytest.mark.parametrize("name", PEOPLE)
def test_no_values_are_found_that_overflow(name: str) -> None:
    function, inputs = PEOPLE[name]
    outcome = check(function, inputs, ["inductor-fx"])
    assert outcome.exit_status() == 0
    (result,) = outcome.results.values()
    assert result.reports["equivalence"].verdict is Verdict.UNKNOWN


def test_the_statistics_that_batch_norm_updates_round() -> None:
    """Its schema does not declare these writes."""
    function, inputs = PEOPLE["batch_norm"]

    def other(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        given = mean.clone()
        made = batch_norm(x, mean, variance)
        mean.copy_(torch.nextafter(mean, given + 9))
        return made

    assert not trial(function, other, *inputs).judgement.violations


def test_a_conversion_that_a_control_cannot_do_without_is_widened_too() -> None:
    """Vectorised kernels round the factor 0.66666 to float16, and others do not."""
    program = program_of(
        """
        v0 = aten.add.Scalar(x0, 3)
        v1 = aten.permute.default(v0, [0, 2, 1, 3])
        v2 = aten.permute.default(v1, [0, 1, 3, 2])
        v3 = aten.mul.Scalar(v2, 0.66666)
        v4 = aten.view.default(v3, [4, 4, 3])
        v5 = aten._to_copy.default(x1, dtype=torch.float16)
        v6 = aten.permute.default(v4, [0, 2, 1])
        v7 = aten.bmm.default(v5, v6)
        return (v7,)
        """,
        view(1, 3, 4, 4, dtype=torch.float16),
        view(4, 3, 3),
    )
    numbers = ((torch.arange(48) * 7) % 48 + 1), ((torch.arange(36) * 7) % 36 + 11)
    storages = tuple(
        replace(storage, values=tuple(map(str, values.tolist())))
        for storage, values in zip(program.storages, numbers, strict=True)
    )
    case = Case.of(replace(program, storages=storages))
    report = run_trial(case, target_named("fx-reinplace")).judgement.reports["values"]
    assert report.verdict is Verdict.HOLDS
    assert report.reason == "output 0: rounding alone, since both sides agree in float64"


def layers(x: Tensor) -> Tensor:
    return F.softmax(F.layer_norm(F.gelu(x @ x.t()), (5,)) @ x, -1)


def averaged(x: Tensor, mean: Tensor) -> Tensor:
    y = layers(x)
    mean.lerp_(y.mean(0), 0.1)
    return y


def averaged_otherwise(x: Tensor, mean: Tensor) -> Tensor:
    y = layers(x.double())
    mean.lerp_(y.mean(0).to(mean.dtype), 0.1)
    return y.to(x.dtype)


def loses_the_average(x: Tensor, mean: Tensor) -> Tensor:
    return layers(x)


NARROW = torch.linspace(-3, 3, 40).view(5, 8).bfloat16(), torch.zeros(8, dtype=torch.bfloat16)


def test_what_narrow_dtypes_leave_open_is_decided_in_float64() -> None:
    right = trial(averaged, averaged_otherwise, *NARROW).judgement
    assert right.violations == []
    assert {right.reports[name].verdict for name in ("values", "inputs")} == {Verdict.HOLDS}
    (lost,) = trial(averaged, loses_the_average, *NARROW).judgement.violations
    assert (lost.oracle, lost.place) == ("inputs", "input 1")


@pytest.mark.parametrize(("place", "open_"), [("input 0", True), ("storage of input 0", False)])
def test_what_is_open_in_no_tensor_stays_open(place: str, open_: bool) -> None:
    left = trial(averaged, averaged_otherwise, *NARROW)
    unknown = Judgement(dict.fromkeys(ON_VALUES, Report(Verdict.UNKNOWN)))
    differs = Report(Verdict.VIOLATED, (Violation("inputs", "input ends wrong", place),))
    found = rounding_control._open_differences(
        unknown, lambda _: Judgement({"inputs": differs}), left.trace
    )
    assert bool(found) == open_


def overflows_between(x: Tensor) -> Tensor:
    return x.half() * 1000 * 1000 / 1000


def rounds_at_the_end(x: Tensor) -> Tensor:
    return (x.half().float() * 1000 * 1000 / 1000).half()


def test_a_function_that_converts_to_a_narrow_dtype_is_no_control() -> None:
    contract = target_named("inductor").contract
    tried = trial(overflows_between, rounds_at_the_end, torch.ones(3), contract=contract)
    assert tried.judgement.reports["values"].verdict is Verdict.UNKNOWN


def cut_between(x: Tensor) -> Tensor:
    return (x.bfloat16() * 3).to(torch.int8)


def cut_at_the_end(x: Tensor) -> Tensor:
    return (x.bfloat16().float() * 3).to(torch.int8)


def test_an_integer_that_was_rounded_before_it_was_cut_is_left_open() -> None:
    contract = target_named("inductor").contract
    given = torch.linspace(0, 40, 999)
    assert not torch.equal(cut_between(given), cut_at_the_end(given))
    tried = trial(cut_between, cut_at_the_end, given, contract=contract)
    assert tried.judgement.reports["values"].verdict is Verdict.UNKNOWN


def projects_twice(x: Tensor, weight: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = x @ weight
        with torch.no_grad():
            weight.mul_(2)
        return x @ weight - first


def converts_each_time(function: Function) -> Function:
    def run(*inputs: Tensor) -> object:
        torch.set_autocast_cache_enabled(False)
        try:
            return function(*inputs)
        finally:
            torch.set_autocast_cache_enabled(True)

    return run


def test_what_autocast_converted_before_a_write_is_not_rounding(monkeypatch) -> None:
    compile_with(monkeypatch, converts_each_time)
    given = torch.ones(3, 3), torch.eye(3, requires_grad=True)
    called = check(projects_twice, given, ["dynamo"], grad=True).results["dynamo as called"]
    # Eager converts the weight once, before it is written, so the difference of both products is 0.
    assert ("values", "wrong value") in [(it.oracle, it.kind) for it in called.violations]


@pytest.mark.parametrize(
    ("other", "places"), [(averaged_otherwise, []), (loses_the_average, ["mean"])]
)
def test_a_function_in_a_narrow_dtype_is_judged_as_called(monkeypatch, other, places):
    compile_with(monkeypatch, lambda function: other)
    called = check(averaged, NARROW, ["dynamo"], grad=True).results["dynamo as called"]
    assert [it.place for it in called.violations] == places
    assert called.reports["values"].verdict is (Verdict.VIOLATED if places else Verdict.HOLDS)


@pytest.mark.parametrize(
    ("dtype", "rest", "same"),
    [
        (torch.float32, 1e-7, True),  # as of `y.float().mean()` where the numbers of y cancel
        (torch.float32, 1e-5, False),
        (torch.float64, 1e-12, True),
        (torch.float64, 1e-7, False),
        (torch.bfloat16, 1e-3, False),
    ],
)
def test_what_is_left_of_numbers_that_cancel(dtype: torch.dtype, rest: float, same: bool) -> None:
    given = [torch.tensor([2.0], dtype=torch.float64)]
    runs = [Observation(given, given, [torch.tensor(it, dtype=dtype)]) for it in (0.0, rest)]
    assert rounding_control.agree(["output 0"], *runs) == same
