"""Oracle *values*: every wrong value is seen, and no right one is reported."""

import functools

import pytest
import torch

import aliasproof.oracles.values
from aliasproof.eager.trace import Tolerance
from aliasproof.oracles.contract import Promise
from aliasproof.oracles.values import differ, judge
from aliasproof.oracles.verdict import HOLDS, Verdict
from tests.oracles.scenes import ALL, pairs_in, runs, waiving

NAN, INF = float("nan"), float("inf")
ROUNDS = Tolerance(rounds=True)
X = torch.arange(1.0, 7).view(2, 3)


def with_one_wrong(count: int, position: int) -> torch.Tensor:
    wrong = torch.arange(float(count))
    wrong[position] += 1
    return wrong


def as_complex(tensor: torch.Tensor) -> torch.Tensor:
    return torch.complex(tensor, -tensor)


def with_part(x: torch.Tensor, part: int, value: float) -> torch.Tensor:
    zeros = torch.zeros(x.shape, dtype=torch.complex64)
    torch.view_as_real(zeros)[..., part].fill_(value)
    return zeros


def next_float(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(tensor, torch.full_like(tensor, INF))


def give_back(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.untyped_storage().resize_(0)
    return y


WRONG = pairs_in(
    """
another number: x + 1 => x + 2
stale: x.add_(1) => (x.clone(), x.add_(1))[0]
one element in many: torch.arange(257.0) => with_one_wrong(257, 256)
the first element: torch.arange(257.0) => with_one_wrong(257, 0)
permuted, with the same sum: x + 0 => x.flip(1)
transposed, with the same sizes: x[:, :2] + 0 => x[:, :2].t() + 0
a sign: x - 3 => (x - 3).abs()
zero instead of NaN: x * NAN => x * 0
NaN instead of a number: x + 0 => torch.where(x > 5, NAN, x)
infinity of the other sign: x * INF => x * -INF
the next float, though every op is exact: x + 1 => next_float(x + 1)
a zero of the other sign: x - x => -(x - x)
a zero of the other sign beside a NaN:
    torch.stack([x[0] * NAN, x[0] - x[0]])
    torch.stack([x[0] * NAN, -(x[0] - x[0])])
a zero of the other sign in a number: x[0, 0].item() * 0.0 => x[0, 0].item() * -0.0
the other part of a complex infinity: with_part(x, 0, INF) => with_part(x, 1, INF)
a zero of the other sign in a part: with_part(x, 1, 0.0) => with_part(x, 1, -0.0)
a float8: x.to(torch.float8_e5m2) => (x + 1).to(torch.float8_e5m2)
a bool: x > 2 => x > 3
an int: x.long() => x.long() + 1
a bfloat16: x.bfloat16() => x.bfloat16() + 1
only the imaginary part: as_complex(x) => as_complex(x).conj()
a 0-d tensor: x[0, 0] + 0 => x[0, 1] + 0
an element shown often: x[:, :1].expand(2, 3) => x[:, 1:2].expand(2, 3)
the second output: (x, x + 1) => (x, x + 2)
swapped outputs: (x + 1, x + 2) => (x + 2, x + 1)
an output missing: (x, x + 1) => (x,)
an output too many: (x,) => (x, x + 1)
None instead of a tensor: x + 1 => None
a number instead of a tensor: x[0, 0] + 0 => 1.0
another Python number: x.shape[0] => x.shape[1]
a Python number of another type: 1 => True
a complex32: x.to(torch.complex32) => (x + 1).to(torch.complex32)
memory that only one has given back: give_back(x) => x.view_as(x)
more than a rounding: x.cos() => x.cos() + 0.001
much more than a rounding: x.cos() => x.cos() + 1
NaN where roundings are forgiven: x.cos() => x.cos() + NAN
an int beside an inexact op: (x.cos(), x.long() + 10 ** 6) => (x.cos(), x.long() + 10 ** 6 + 1)
a bool beside an inexact op: (x.cos(), x > 2) => (x.cos(), x > 3)
a number out of a tensor: x.cos().sum().item() => x.cos().sum().item() + 0.001
a number out of no tensor: 1.0 => 1.0 + 1e-07
exact bits: x.neg().view(torch.int32) => x.view(torch.int32)
""",
    globals(),
)

RIGHT = pairs_in(
    """
equal: x + 1 => 1 + x
NaN and infinities: x / (x - x) * NAN => x * NAN
zeros of either sign out of a clamp: (x - x).relu() => -(x - x).relu()
a float8 with a NaN: (x * NAN).to(torch.float8_e5m2) => (x * NAN).to(torch.float8_e5m2)
equal infinities: x * INF => x * INF
another layout: x + 0 => x.t().contiguous().t()
no elements: x[:0] => x[:0] + 1
tuple and list: (x, x + 1) => [x, x + 1]
nested: {'a': (x, [x + 1])} => {'a': (x, [x + 1])}
nothing: None => None
Python numbers: (1, 2.5, 'a') => (1, 2.5, 'a')
complex infinity in either part: torch.complex(x * INF, x) => torch.complex(x, x * -INF)
complex32: x.to(torch.complex32) => x.to(torch.complex32)
memory that both have given back: give_back(x) => give_back(x)
no memory: x.to('meta') => x.to('meta')
another dtype, which *metadata* reports: x + 1 => (x + 2).double()
another size, which *metadata* reports: x + 1 => (x + 2)[:1]
a rounding: x.cos() => next_float(x.cos())
a rounding of a number out of a tensor: x.cos().sum().item() => x.cos().sum().item() + 1e-07
inexact bits: x.cos().view(torch.int32) => x.cos().view(torch.int32)
complex NaN in either part: torch.complex(x * NAN, x) => torch.complex(x, x * NAN)
""",
    globals(),
)


pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_seen(name: str) -> None:
    report = judge(ALL, *runs(*WRONG[name]))
    assert report.verdict is Verdict.VIOLATED
    assert {each.oracle for each in report.violations} == {"values"}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_value_is_not_blamed(name: str) -> None:
    assert judge(ALL, *runs(*RIGHT[name])) == HOLDS


def test_the_evidence_has_the_index_and_both_values() -> None:
    target = lambda x: (x, x.index_fill(1, torch.tensor([1]), 0))  # noqa: E731
    (violation,) = judge(ALL, *runs(lambda x: (x, x.clone()), target, [X])).violations
    assert (violation.kind, violation.place) == ("wrong value", "output 1")
    assert violation.evidence == {
        "first wrong index": [0, 1],
        "wrong elements": 2,
        "elements": 6,
        "eager": "2.0",
        "target": "0.0",
    }


def test_every_wrong_output_is_listed() -> None:
    report = judge(ALL, *runs(lambda x: (x + 1, x, x + 3), lambda x: (x + 2, x, x + 2), [X]))
    assert [each.place for each in report.violations] == ["output 0", "output 2"]


# --- tolerance ------------------------------------------------------------------------------------


def test_nan_equals_nan_also_with_a_tolerance() -> None:
    tensor = torch.tensor([1.0, NAN])
    assert differ(tensor, tensor.clone(), ROUNDS) is None
    assert differ(tensor, torch.tensor([NAN, 1.0]), ROUNDS) is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_the_tolerance_is_that_of_the_dtype(dtype: torch.dtype) -> None:
    one, near, far = (
        torch.tensor([1.0, number], dtype=torch.float64).to(dtype)
        for number in (1.0, 1 + 1e-3, 1.1)
    )
    assert differ(one, far, ROUNDS) is not None
    assert (differ(one, near, ROUNDS) is None) == (dtype in (torch.float16, torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_was_rounded_in_a_coarser_dtype_may_differ_by_its_last_bits(dtype) -> None:
    def program(x: torch.Tensor, error: float) -> torch.Tensor:
        rounded = x.to(dtype).cos() * (1 + error)
        return torch.cat([rounded.double(), x.double()]) * 2

    near, far = torch.finfo(dtype).eps, 100 * torch.finfo(dtype).eps
    eager = functools.partial(program, error=0.0)
    for error, verdict in ((near, Verdict.HOLDS), (far, Verdict.VIOLATED)):
        target = functools.partial(program, error=error)
        assert judge(ALL, *runs(eager, target, [X])).verdict is verdict
    # Results of float64 operands are exact to the precision of float64.
    off = judge(ALL, *runs(lambda x: x.double().cos(), lambda x: x.double().cos() + 1e-6, [X]))
    assert off.verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float8_e4m3fn, 1.125), (torch.float8_e5m2, 1.25)]
)
def test_float8_may_differ_by_one_unit_in_the_last_place(dtype: torch.dtype, near: float) -> None:
    one, other, far = (torch.tensor([1.0, number]).to(dtype) for number in (1.0, near, 1.5))
    assert differ(one, other, ROUNDS) is None
    assert differ(one, other) is not None
    assert differ(one, far, ROUNDS) is not None


def test_a_last_bit_that_shows_through_another_dtype_is_undecided() -> None:
    eager, target = RIGHT["inexact bits"][0], lambda x: next_float(x.cos()).view(torch.int32)
    assert judge(ALL, *runs(eager, target, [X])).verdict is Verdict.UNKNOWN


def test_an_exact_output_is_exact_even_beside_an_inexact_one() -> None:
    eager, target = (lambda x: (x.cos(), x + 1)), (lambda x: (x.cos(), next_float(x + 1)))
    assert [each.place for each in judge(ALL, *runs(eager, target, [X])).violations] == ["output 1"]


# --- the contract ---------------------------------------------------------------------------------


def test_values_that_are_not_promised_are_compared() -> None:
    contract = waiving(Promise.VALUES)
    report = judge(contract, *runs(lambda x: x + 1, lambda x: x, [X]))
    assert (report.verdict, report.violations) == (Verdict.DOCUMENTED, ())
    assert report.differences == judge(ALL, *runs(lambda x: x + 1, lambda x: x, [X])).violations
    assert judge(contract, *runs(lambda x: x + 1, lambda x: x + 1, [X])) == HOLDS


@pytest.mark.parametrize("shape", [(10,), (5, 2), (2, 5), (1, 10), (2, 5, 1)])
@pytest.mark.parametrize("wrong", [[3], [9, 4], [0]])
def test_large_tensors_are_compared_in_parts(monkeypatch, shape, wrong) -> None:
    expected = torch.arange(10.0).view(shape)
    actual = expected.clone()
    actual.view(-1)[wrong] += 1
    whole = differ(expected, actual)
    monkeypatch.setattr(aliasproof.oracles.values, "PART", 3)
    assert differ(expected, actual) == whole
    assert whole is not None
    assert whole["wrong elements"] == len(wrong)
