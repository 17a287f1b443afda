"""The trace: the facts about an eager run on which contracts and comparisons depend."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from aliasproof.eager.definedness import Watch
from aliasproof.eager.trace import Tolerance, Trace
from aliasproof.ir.regions import Region
from aliasproof.oracles.observation import observe_eager

aten = torch.ops.aten

NAN = float("nan")
Function = Callable[..., object]


def vector(count: int = 4) -> Tensor:
    return torch.arange(1, count + 1).to(torch.float32)


def traced(function: Function, *inputs: Tensor) -> Trace:
    watch = Watch(inputs)
    with watch, torch.no_grad():
        function(*inputs)
    return watch.trace


def test_the_trace_says_where_inputs_are() -> None:
    x = vector(6)
    y = x[2:]
    trace = traced(lambda x, y: None, x, y)
    assert [location.region for location in trace.inputs] == [Region.of(x), Region.of(y)]
    assert [location.storage for location in trace.inputs] == [x.data_ptr()] * 2


@pytest.mark.parametrize(
    ("function", "written"),
    [
        pytest.param(lambda x, y: x + y, [], id="functional"),
        pytest.param(lambda x, y: x.add_(y), [0], id="in-place"),
        pytest.param(lambda x, y: x[1:].transpose(0, 0).zero_(), [0], id="through views"),
        pytest.param(lambda x, y: torch.add(x, 1, out=y), [1], id="out="),
        pytest.param(lambda x, y: torch._foreach_zero_([x, y]), [0, 1], id="foreach"),
        pytest.param(lambda x, y: x.clone().add_(y), [], id="a tensor of its own"),
    ],
)
def test_the_trace_says_which_inputs_are_written(function: Function, written: list[int]) -> None:
    x, y = vector(), vector()
    trace = traced(function, x, y)
    locations = enumerate(trace.inputs)
    assert [index for index, each in locations if each.storage in trace.written] == written


ROUNDING = [
    pytest.param(lambda x: (x + 1).neg().mul(3).clamp(max=2), None, id="one rounding each"),
    pytest.param(lambda x: x.cos(), "aten.cos.default", id="a function without an exact result"),
    pytest.param(lambda x: x.sum(), "aten.sum.default", id="the order of a sum"),
    pytest.param(lambda x: x @ x, "aten.dot.default", id="the order of a product"),
    pytest.param(lambda x: x.long().sum(), None, id="integers"),
    pytest.param(
        lambda x: x.to(torch.complex64) * 2, "aten.mul.Tensor", id="fused in a complex product"
    ),
    pytest.param(
        lambda x: x.bfloat16().sub(x.bfloat16(), alpha=3), "aten.sub.Tensor", id="fused with alpha"
    ),
    pytest.param(lambda x: x.sub(x, alpha=-1), None, id="a factor of -1 is only a sign"),
    pytest.param(
        lambda x: aten.mul.Scalar(x.half(), 2049), "aten.mul.Scalar", id="a number is rounded"
    ),
    pytest.param(
        lambda x: torch._foreach_mul([x.bfloat16()], [0.1]),
        "aten._foreach_mul.ScalarList",
        id="a number in a list is rounded",
    ),
    pytest.param(
        lambda x: x.bfloat16() - torch.tensor(625.0),
        "aten.sub.Tensor",
        id="a 0-d operand is rounded",
    ),
    pytest.param(
        lambda x: aten._assert_tensor_metadata.default(x, dtype=torch.float32),
        None,
        id="an assertion computes nothing",
    ),
    pytest.param(lambda x: x.half() * 2048, None, id="a number that the dtype represents"),
    pytest.param(lambda x: x * 0.1, None, id="a number for float32"),
    pytest.param(lambda x: x.half().fill_(0.1), None, id="a number that is only stored"),
    pytest.param(
        lambda x: (x.cumsum(0), x.sigmoid()), "aten.cumsum.default", id="the first is named"
    ),
]


@pytest.mark.parametrize(("function", "first"), ROUNDING)
def test_the_trace_names_the_first_op_whose_rounding_depends_on_the_kernel(function, first):
    assert traced(function, vector()).rounding.first == first


FOLLOWED = [
    pytest.param(lambda x, y: (x.cos(), y + 1), [False, True], id="beside inexact data"),
    pytest.param(lambda x, y: (x.cos() + y, y), [False, True], id="computed from inexact data"),
    pytest.param(
        lambda x, y: (x.cos()[1:].view(-1), y[1:]), [False, True], id="a view of inexact data"
    ),
    pytest.param(lambda x, y: (y.copy_(x.cos()), y[:1]), [False, False], id="copied into an input"),
    pytest.param(lambda x, y: ((y.cos_(), y)[1], y + 1), [False, False], id="in place"),
    pytest.param(lambda x, y: (x.neg(), 3), [True, True], id="nothing is inexact"),
]


@pytest.mark.parametrize(("function", "exact"), FOLLOWED)
def test_what_is_computed_from_inexact_data_is_not_exact(function, exact):
    observed, trace = observe_eager(function, [vector(), vector()])
    assert list(map(trace.exact, observed.outputs)) == exact


@pytest.mark.parametrize(
    ("function", "read_as_bits"),
    [
        pytest.param(lambda x: x.cos().view(torch.int32), True, id="a rounding"),
        pytest.param(lambda x: (x * NAN).view(torch.int32), True, id="a NaN"),
        pytest.param(lambda x: (x.view(torch.int32)[:2], x.cos_()), True, id="a rounding, later"),
        pytest.param(lambda x: x.neg().view(torch.int32), False, id="neither"),
        pytest.param(lambda x: x.cos(), False, id="no other dtype"),
    ],
)
def test_the_trace_notes_kernel_dependent_bits_that_are_read_as_another_dtype(
    function: Function, read_as_bits: bool
) -> None:
    observed, trace = observe_eager(function, [vector()])
    assert any(map(trace.bits_open, (*observed.outputs, *observed.inputs))) == read_as_bits


def test_kernel_dependent_bits_in_one_tensor_say_nothing_of_another() -> None:
    observed, trace = observe_eager(
        lambda x, y: (x.neg(), y.cos().view(torch.int32)), [vector(), vector()]
    )
    assert list(map(trace.bits_open, observed.outputs)) == [False, True]


@pytest.mark.parametrize(
    ("sizes", "strides", "overlapping"),
    [
        ((2, 2), (1, 1), True),
        ((3,), (0,), True),
        ((2, 2), (2, 1), False),
        ((2,), (3,), False),
        ((0, 2), (0, 0), False),
    ],
)
def test_the_trace_notes_overlapping_as_strided(sizes, strides, overlapping):
    assert (
        traced(lambda x: x.as_strided(sizes, strides), vector()).overlapping_as_strided
        == overlapping
    )
    assert not traced(lambda x: x.expand(2, 4), vector()).overlapping_as_strided


@pytest.mark.parametrize(
    ("sizes", "strides", "offset", "outside"),
    [((2,), (1,), 2, False), ((4,), (1,), 0, True), ((2,), (2,), 2, True)],
)
def test_the_trace_notes_as_strided_outside_its_argument(sizes, strides, offset, outside):
    """The input is elements 2 and 3 of a storage of five."""
    assert traced(lambda x: x.as_strided(sizes, strides, offset), vector(5)[2:4]).outside == outside


def test_the_trace_follows_data_that_were_written_through_an_overlapping_region() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[object]:
        before = x + 1
        x.expand(3, 4).zero_()
        return [before, x[1:], x + y, y * 2, x.sum().item()]

    _, trace = observe_eager(program, [vector(), vector()])
    outputs = {f"output {index}" for index in (1, 2, 4)}
    assert trace.from_expanded == {"input 0"} | outputs
    _, trace = observe_eager(lambda x: (x.zero_(), x.sum().item()), [vector()])
    assert not trace.from_expanded


def test_the_trace_lists_written_regions_that_overlap_themselves() -> None:
    x = vector()
    assert traced(lambda x: (x.expand(3, 4).zero_(), x.add_(1)), x).overlapping_writes == {
        Region(x.data_ptr(), (3, 4), (0, 4), 4)
    }


# --- special values -------------------------------------------------------------------------------

INF = float("inf")
MIXED = lambda x: x.view(torch.int32)  # noqa: E731


def scattered(dtype: torch.dtype) -> Tensor:
    """The bits of a NaN that a scatter leaves as it is."""
    nan = torch.empty(4, dtype=dtype).fill_(NAN)
    return nan.scatter_(0, torch.zeros(1, dtype=torch.int64), 1).view(torch.int32)


def normalized(x: Tensor) -> Tensor:
    result: Tensor = aten._native_batch_norm_legit.no_stats(x[:, None], None, None, True, 0.5, 1)[0]
    return result


@pytest.mark.parametrize(
    ("function", "is_open"),
    [
        pytest.param(lambda x: (x * 1e20).sum(), True, id="a sum of huge numbers"),
        pytest.param(lambda x: (x * INF).sum(), False, id="a sum of infinities"),
        pytest.param(lambda x: x.sum() * 1e20, False, id="a product of a rounded number"),
        pytest.param(lambda x: x.sum() * (x * 1e20), True, id="a rounding times 1e20"),
        pytest.param(lambda x: x.cos() * (x * INF), True, id="a rounding times infinity"),
        pytest.param(lambda x: x.cos() + x * INF, False, id="a rounding and infinity"),
        pytest.param(lambda x: (x * INF) @ x, True, id="infinity in a product of vectors"),
        pytest.param(lambda x: aten._add_relu(x, x * NAN), True, id="a NaN that is dropped"),
        pytest.param(lambda x: x / (x - x).relu(), True, id="division by a zero of either sign"),
        pytest.param(lambda x: x / (x - x), False, id="division by a zero of known sign"),
        pytest.param(lambda x: MIXED((x - x).relu()), True, id="bits of a zero of either sign"),
        pytest.param(lambda x: MIXED(x.fill_(NAN)), False, id="bits of a NaN that was moved"),
        pytest.param(lambda x: scattered(torch.half), True, id="bits of a NaN beside a store"),
        pytest.param(lambda x: scattered(torch.float), False, id="the same in 32 bits"),
        pytest.param(
            lambda x: torch.view_as_real(x.to(torch.complex64) * INF), True, id="parts of NaN"
        ),
        pytest.param(
            lambda x: torch.view_as_real(x.to(torch.complex64) * 2), False, id="parts of numbers"
        ),
        pytest.param(
            lambda x: (x.to(torch.complex64) + INF).exp(), True, id="exp of parts of infinity"
        ),
        pytest.param(lambda x: (x.to(torch.complex64) + 2).exp(), False, id="exp of numbers"),
        pytest.param(lambda x: (x.mul_(1e20).sum(), 0)[0], True, id="overwritten operands"),
        pytest.param(lambda x: normalized(x.half()), True, id="a normalization in 16 bits"),
        pytest.param(normalized, False, id="a normalization in 32 bits"),
        pytest.param(lambda x: (x * 0 + 89).cosh(), True, id="cosh where exp overflows"),
        pytest.param(lambda x: (x * 0 + 80).cosh(), False, id="cosh below that"),
    ],
)
def test_a_value_is_open_where_a_small_difference_may_have_become_a_large_one(function, is_open):
    observed, trace = observe_eager(function, [vector()])
    assert trace.bits_open(observed.outputs[0]) == is_open


@pytest.mark.parametrize(
    ("function", "tolerance"),
    [
        pytest.param(lambda x: x + 1, Tolerance(), id="nothing"),
        pytest.param(lambda x: x.relu(), Tolerance(zero_sign=True), id="a clamp"),
        pytest.param(lambda x: x.relu().neg(), Tolerance(zero_sign=True), id="after a clamp"),
        pytest.param(lambda x: x.cos(), Tolerance(rounds=True), id="a rounding"),
        pytest.param(lambda x: x.double().cos(), Tolerance(rounds=True), id="a rounding in double"),
        pytest.param(
            lambda x: x.cos().double(),
            Tolerance(rounds=True, coarser=torch.float32),
            id="a rounding, then a wider dtype",
        ),
        pytest.param(
            lambda x: x.half().cos().float().double() + x.cos(),
            Tolerance(rounds=True, coarser=torch.float16),
            id="the coarsest of several",
        ),
    ],
)
def test_the_trace_says_what_kernels_may_do_differently(function, tolerance):
    observed, trace = observe_eager(function, [vector()])
    (output,) = observed.outputs
    assert isinstance(output, Tensor)
    assert replace(trace.tolerance(output), parts=False) == tolerance


def test_complex_parts_are_open_only_if_they_were_computed() -> None:
    moved = torch.complex(vector(), vector())
    observed, trace = observe_eager(lambda x: (x.clone(), x + x), [moved])
    parts = [trace.tolerance(each).parts for each in observed.outputs if isinstance(each, Tensor)]
    assert parts == [False, True]


@pytest.mark.parametrize(
    ("function", "read"),
    [
        (lambda x: x.sum().item(), "aten._local_scalar_dense.default"),
        (lambda x: x.tolist(), "Tensor.tolist"),
        (lambda x: torch.from_numpy(x.numpy()), "Tensor.numpy"),
        (np.asarray, "Tensor.numpy"),
        (lambda x: x + x.shape[0], None),
        # The watch itself calls `numpy` on tensors that it records for uninitialised memory.
        (lambda x: x.new_empty(4).masked_fill_(x > 0, 1), None),
        (lambda x: x.new_empty(4).index_put_((torch.arange(4),), x), None),
    ],
)
def test_what_reads_tensor_data(function: Function, read: str | None) -> None:
    patched = torch.Tensor.tolist, torch.Tensor.numpy
    assert traced(function, vector()).data_dependent == read
    assert (torch.Tensor.tolist, torch.Tensor.numpy) == patched


# --- fused rounding: only results that depend on a rounding between two ops are noted -------------


BF16, F32 = torch.bfloat16, torch.float32
THIRD = 1 / 3


def rounds_between(function: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    watch = Watch([x])
    with watch, torch.no_grad():
        result = function(x)
    return watch.trace.rounds_between(result)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda x: x * THIRD, False, id="one op rounds as eager"),
        pytest.param(lambda x: x * THIRD * 3, True, id="two ops"),
        pytest.param(lambda x: (x * 2 + 1) * 4, False, id="small integers lose no digit"),
        pytest.param(lambda x: x.mul_(THIRD).add_(1), True, id="in place"),
        pytest.param(lambda x: (x * THIRD).clone(), False, id="moved in its dtype"),
        pytest.param(lambda x: (x * THIRD).clone() * 3, True, id="moved, then read"),
        pytest.param(lambda x: (x * THIRD).float(), True, id="moved to a wider dtype"),
        pytest.param(lambda x: x * THIRD > 1, True, id="compared"),
        pytest.param(lambda x: (x * THIRD)[1:] * 3, True, id="through a view"),
        pytest.param(lambda x: torch.mul(x, THIRD, out=x.clone()) * 3, True, id="out="),
        pytest.param(lambda x: x.float() * THIRD * 3, False, id="wide"),
        pytest.param(torch.rand_like, False, id="random"),
    ],
)
def test_what_depends_on_rounding_is_noted(function, expected):
    assert rounds_between(function, torch.arange(1, 5).to(BF16)) == expected


def test_a_cast_to_a_narrow_dtype_and_back_is_noted() -> None:
    assert rounds_between(lambda x: x.to(BF16).to(F32), torch.tensor([THIRD]))
    assert not rounds_between(lambda x: x.to(BF16).to(F32), torch.tensor([3.0]))


def test_a_number_may_come_from_any_tensor() -> None:
    watch = Watch([x := torch.ones(2, dtype=BF16)])
    with watch:
        number = (x * THIRD).sum().item()
    assert watch.trace.rounds_between(number)


# --- results that correct kernels may have on two sides of a jump, or beside a huge number --------


HIDDEN = torch.finfo(torch.float32).min
INF = float("inf")
SECOND_ROW = torch.tensor([[False], [True]])
SEVENTH = torch.tensor([1.0, 2.0, 4.0, 7.0])  # of x.exp().log(), which rounds


def scaled(x: Tensor) -> Tensor:
    return x.exp().log()


def is_open(function: Callable[[Tensor], object], x: Tensor) -> bool:
    """Whether correct kernels may differ in some value of the output."""
    observed, trace = observe_eager(function, [x])
    assert observed.error is None
    return trace.bits_open(observed.outputs[0])


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: scaled(x).round(), SEVENTH),
        (lambda x: scaled(x).round().to(torch.int8), SEVENTH),
        (lambda x: (scaled(x) <= 5).float(), SEVENTH),
        (lambda x: scaled(x).floor(), SEVENTH + 0.5),
        (lambda x: scaled(x).argmin(dim=0), SEVENTH),
        (lambda x: scaled(x).view(2, 2).argmax(dim=1), torch.tensor([1.0, 2.0, 2.0, 4.0])),
        (lambda x: scaled(x).masked_fill(x < 2, HIDDEN).softmax(0), SEVENTH),
        (lambda x: (scaled(x) + torch.where(x < 2, HIDDEN, 0.0)).softmax(0), SEVENTH),
        (lambda x: scaled(x).masked_fill(x < 2, -INF).softmax(0), SEVENTH),
        (lambda x: scaled(x).view(2, 2).masked_fill(SECOND_ROW, -INF).log_softmax(0), SEVENTH),
        (lambda x: scaled(x).sum().sort(-1).indices, SEVENTH),
        (lambda x: x.cos().mul(0).add(2), SEVENTH),
        (lambda x: x.floor(), SEVENTH),
        (lambda x: (x * 500).round(decimals=-3), SEVENTH),
        (lambda x: x.bfloat16() > 0.5, SEVENTH),
    ],
    ids=range(15),
)
def test_away_from_a_jump_all_kernels_say_the_same(function, x):
    assert not is_open(function, x)


def masked_below(score: Tensor, least: Tensor) -> Tensor:
    return score.masked_fill(score < least, 0.0)


@pytest.mark.parametrize(
    "compared",
    [
        lambda y: masked_below(y, y.topk(2).values[-1:]),
        lambda y: masked_below(y, y.sort().values[[1]]),
        lambda y: masked_below(y.view(2, 2), y.view(2, 2).amax(1, keepdim=True)),
        lambda y: (y == y.clone().max()).float(),
        lambda y: (y.clone() >= y[1:2]).float(),
        lambda y: (y.relu_() <= y.median()).float(),
    ],
    ids=["topk", "sort", "amax", "max of a copy", "a part", "written before"],
)
def test_an_element_equals_itself_on_all_kernels(compared: Callable[[Tensor], Tensor]) -> None:
    assert not is_open(lambda x: compared(scaled(x)), SEVENTH)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda y: (y == y.max()).float(), torch.tensor([1.0, 2.0, 2.0])),
        (lambda y: (y[1:] > y[:-1]).float(), torch.tensor([1.0, 2.0, 2.0])),
        (lambda y: (torch.cat([y, y.log().exp()]) < y.max()).float(), SEVENTH),
        (lambda y: (y == y.to(torch.bfloat16).float()).float(), SEVENTH),
        (lambda y: (y.masked_fill(y < 3, 7.0) < y.max()).float(), SEVENTH),
        (lambda y: (y.max() > y.mul_(2).mul_(0.5)).float(), SEVENTH),
    ],
    ids=["ties", "parts with ties", "others beside it", "rounded", "a constant", "written after"],
)
def test_another_element_may_be_on_the_other_side(function, x):
    assert is_open(lambda x: function(scaled(x)), x)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: scaled(x).round(), SEVENTH + 0.5),
        (lambda x: scaled(x).floor(), SEVENTH),
        (lambda x: scaled(x).to(torch.int8), SEVENTH),
        (lambda x: (scaled(x) <= 4).float(), SEVENTH),
        (lambda x: scaled(x).argmin(dim=0), torch.tensor([2.0, 1.0, 1.0])),
        (lambda x: scaled(x).sort().indices, torch.tensor([2.0, 1.0, 2.0])),
        (lambda x: scaled(x).masked_fill(x < 9, HIDDEN).softmax(0), SEVENTH),
        (lambda x: scaled(x).masked_fill(x < 9, -INF).softmax(0), SEVENTH),
        (lambda x: scaled(x) + 1e20 - 1e20, SEVENTH),
        (lambda x: x.cos() > x.cos(), SEVENTH),
        (lambda x: x.bfloat16() > 0.1, SEVENTH),
    ],
    ids=range(11),
)
def test_at_a_jump_they_may_say_another_thing(function, x):
    assert is_open(function, x)
